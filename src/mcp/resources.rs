//! Jobs and hosts as resources, for clients that show them to people or put them into a context.

use rmcp::model::{
    Annotations, CacheScope, CompleteRequestParams, CompleteResult, CompletionInfo, ErrorData, JsonObject,
    ListResourceTemplatesResult, ListResourcesResult, MetaObject, ReadResourceResult, Reference, Resource,
    ResourceContents, ResourceTemplate, Role,
};
use serde_json::{Value, json};

use super::resource_uri::{HOST, LOG, ResourceUri, TAG};
use crate::wire::{Code, Error, HostsRequest, JobEntry, JobsRequest, Service, TailRequest};

/// Jobs in a list: the newest.
const LISTED: i64 = 100;
/// Most text of a log in one answer.
const MOST_LINES: i64 = 10_000;
const MOST_BYTES: i64 = 262_144;
const TEXT: &str = "text/plain";
const JSON: &str = "application/json";

/// The logs of the newest jobs.
pub(super) async fn list(service: &Service) -> Result<ListResourcesResult, ErrorData> {
    let request = JobsRequest { limit: Some(LISTED), ..JobsRequest::default() };
    let jobs = service.jobs(request).await.map_err(|error| told(&error))?.jobs;
    let mut listed = ListResourcesResult::with_all_items(jobs.iter().map(resource).collect());
    listed.cache_scope = Some(CacheScope::Private);
    listed.ttl_ms = Some(0);
    Ok(listed)
}

fn resource(job: &JobEntry) -> Resource {
    let shown = format!("{} on {}: {}", job.standing, job.host, job.command);
    Resource::new(ResourceUri::of_log(&job.job_id), &job.job_id)
        .with_title(job.label.clone().unwrap_or_else(|| job.command.clone()))
        .with_description(shown)
        .with_mime_type(TEXT)
        .with_size(job.total_bytes)
        .with_annotations(Annotations::default().with_audience(vec![Role::User, Role::Assistant]))
}

/// What URIs look like.
pub(super) fn templates() -> ListResourceTemplatesResult {
    let template = |uri: &str, name: &str, title: &str, description: &str, kind: &str| {
        ResourceTemplate::new(uri, name).with_title(title).with_description(description).with_mime_type(kind)
    };
    let log = "A job's output: the lines behind line `since`, of one stream or both";
    ListResourceTemplatesResult::with_all_items(vec![
        template(LOG, "log", "Job output", log, TEXT),
        template(HOST, "host", "Host", "A host, as far as it is known without connecting", JSON),
        template(TAG, "tag", "Hosts with a tag", "The hosts with a tag", JSON),
    ])
}

/// Reads a resource.
pub(super) async fn read(service: &Service, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let contents = match ResourceUri::parse(uri).map_err(|error| told(&error))? {
        ResourceUri::Log { job_id, since, stream } => {
            let request = TailRequest {
                since_line_no: Some(since),
                stream,
                max_lines: Some(MOST_LINES),
                max_bytes: Some(MOST_BYTES),
                ..TailRequest::new(job_id, 0, 0)
            };
            let mut reply = service.tail(request).await.map_err(|error| told(&error))?;
            let mut text = reply.lines.take().unwrap_or_default().join("\n");
            if !text.is_empty() {
                text.push('\n');
            }
            ResourceContents::text(text, uri).with_mime_type(TEXT).with_meta(meta(json!(reply)))
        }
        ResourceUri::Host(name) => {
            let hosts = service.hosts(HostsRequest::default()).await.map_err(|error| told(&error))?.hosts;
            let host = hosts.into_iter().find(|host| host.name == name).ok_or_else(|| no_such(uri))?;
            ResourceContents::text(json!(host).to_string(), uri).with_mime_type(JSON)
        }
        ResourceUri::Tag(tag) => {
            let request = HostsRequest { tag: Some(tag), ..HostsRequest::default() };
            let hosts = service.hosts(request).await.map_err(|error| told(&error))?;
            ResourceContents::text(json!(hosts).to_string(), uri).with_mime_type(JSON)
        }
    };
    let mut read = ReadResourceResult::new(vec![contents]);
    read.cache_scope = CacheScope::Private.into();
    Ok(read)
}

/// How a log stands: what a reader needs to go on.
fn meta(reply: Value) -> MetaObject {
    MetaObject(JsonObject::from_iter([("sshjobs/log".to_owned(), reply)]))
}

fn no_such(uri: &str) -> ErrorData {
    ErrorData::resource_not_found(format!("there is no resource {uri}"), None)
}

/// An error in the form that this part of MCP has for it.
pub(super) fn told(error: &Error) -> ErrorData {
    let data = serde_json::to_value(error).ok();
    let is_unknown = [Code::UnknownJob, Code::ExpiredJob, Code::NotFound].contains(&error.code);
    let told = if is_unknown { ErrorData::resource_not_found } else { ErrorData::invalid_params };
    told(error.to_string(), data)
}

/// Completes a variable of a template: ids of jobs, names of hosts, tags, streams.
pub(super) async fn complete(
    service: &Service,
    request: CompleteRequestParams,
) -> Result<CompleteResult, ErrorData> {
    let Reference::Resource(template) = request.r#ref else { return Ok(CompleteResult::default()) };
    let known: Vec<String> = match (template.uri.as_str(), request.argument.name.as_str()) {
        (LOG, "job_id") => {
            let request = JobsRequest { limit: Some(1000), ..JobsRequest::default() };
            let jobs = service.jobs(request).await.map_err(|error| told(&error))?.jobs;
            jobs.into_iter().map(|job| job.job_id).collect()
        }
        (LOG, "stream") => ["both", "stdout", "stderr"].map(str::to_owned).into(),
        (HOST, "host") => hosts(service).await?.into_iter().map(|(name, _)| name).collect(),
        (TAG, "tag") => {
            let mut tags: Vec<String> =
                hosts(service).await?.into_iter().flat_map(|(_, tags)| tags).collect();
            tags.sort_unstable();
            tags.dedup();
            tags
        }
        _ => return Ok(CompleteResult::default()),
    };
    let mut values: Vec<String> =
        known.into_iter().filter(|value| value.starts_with(&request.argument.value)).collect();
    let total = values.len();
    values.truncate(CompletionInfo::MAX_VALUES);
    let has_more = values.len() < total;
    let total = u32::try_from(total).ok();
    let completion = CompletionInfo::with_pagination(values, total, has_more)
        .map_err(|error| ErrorData::internal_error(error, None))?;
    Ok(CompleteResult::new(completion))
}

async fn hosts(service: &Service) -> Result<Vec<(String, Vec<String>)>, ErrorData> {
    let hosts = service.hosts(HostsRequest::default()).await.map_err(|error| told(&error))?.hosts;
    Ok(hosts.into_iter().map(|host| (host.name, host.tags)).collect())
}
