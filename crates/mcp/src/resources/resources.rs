//! Jobs and hosts as resources, for clients that show them to people or add them to a context.

use rmcp::model::{
    Annotations, CacheScope, CompleteRequestParams, CompleteResult, CompletionInfo, ErrorData,
    JsonObject, ListResourceTemplatesResult, ListResourcesResult, MetaObject, ReadResourceResult,
    Resource, ResourceContents, ResourceTemplate, Role,
};
use serde_json::{Value, json};

use super::resource_uri::{HOST, LOG, ResourceUri, TAG};
use crate::app;
use sshjobs_wire::{Code, Error, HostsRequest, JobEntry, JobsRequest, Service, TailRequest};

/// Maximum jobs in a list, which has the newest.
const LISTED: i64 = 100;
/// Maximum lines of a log in one answer.
const MOST_LINES: i64 = 10_000;
const MOST_BYTES: i64 = 262_144;
const TEXT: &str = "text/plain";
const MARKDOWN: &str = "text/markdown";
const JSON: &str = "application/json";

/// The logs of the newest jobs.
pub(crate) async fn list(service: &Service) -> Result<ListResourcesResult, ErrorData> {
    let request = JobsRequest {
        limit: Some(LISTED),
        // A list must not wait for hosts.
        cached: true,
        ..JobsRequest::default()
    };
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

/// The URI templates.
pub(crate) fn templates() -> ListResourceTemplatesResult {
    let log = "A job's output: the lines after line `since`, of one stream or both";
    ListResourceTemplatesResult::with_all_items(vec![
        ResourceTemplate::new(LOG, "log")
            .with_title("Job output")
            .with_description(log)
            .with_mime_type(TEXT),
        ResourceTemplate::new(HOST, "host")
            .with_title("Host")
            .with_description("A host, as far as it is known without connecting")
            .with_mime_type(JSON),
        ResourceTemplate::new(TAG, "tag")
            .with_title("Hosts with a tag")
            .with_description("The hosts with a tag")
            .with_mime_type(JSON),
    ])
}

/// Reads a resource.
pub(crate) async fn read(service: &Service, uri: &str) -> Result<ReadResourceResult, ErrorData> {
    let contents = contents(service, uri).await.map_err(|error| told_of(&error, uri))?;
    let mut read = ReadResourceResult::new(vec![contents]);
    read.cache_scope = CacheScope::Private.into();
    Ok(read)
}

async fn contents(service: &Service, uri: &str) -> Result<ResourceContents, Error> {
    Ok(match ResourceUri::parse(uri)? {
        ResourceUri::Log {
            job_id,
            since,
            stream,
        } => {
            let request = TailRequest {
                since_line_no: Some(since),
                stream,
                max_lines: Some(MOST_LINES),
                max_bytes: Some(MOST_BYTES),
                ..TailRequest::new(job_id, 0, 0)
            };
            let mut reply = service.tail(request).await?;
            // Taken out of the reply, so that the metadata below does not repeat the lines.
            let mut text = reply.lines.take().unwrap_or_default().join("\n");
            if !text.is_empty() {
                text.push('\n');
            }
            ResourceContents::text(text, uri)
                .with_mime_type(TEXT)
                .with_meta(meta(json!(reply)))
        }
        ResourceUri::Skill(text) => ResourceContents::text(text, uri).with_mime_type(MARKDOWN),
        ResourceUri::LogApp => {
            // It loads nothing and calls only the client.
            let csp = json!({"connectDomains": [], "resourceDomains": []});
            ResourceContents::text(app::page(), uri)
                .with_mime_type(app::MEDIA_TYPE)
                .with_meta(app::ui_meta(json!({"csp": csp, "prefersBorder": true})))
        }
        ResourceUri::Host(name) => {
            let hosts = service.hosts(HostsRequest::default()).await?.hosts;
            let host = hosts.into_iter().find(|host| host.name == name).ok_or_else(|| {
                Error::new(
                    Code::NotFound,
                    format!("no host is called {name:?}"),
                    "ssh_hosts lists the hosts there are",
                )
            })?;
            ResourceContents::text(json!(host).to_string(), uri).with_mime_type(JSON)
        }
        ResourceUri::Tag(tag) => {
            let request = HostsRequest {
                tag: Some(tag),
                ..HostsRequest::default()
            };
            ResourceContents::text(json!(service.hosts(request).await?).to_string(), uri)
                .with_mime_type(JSON)
        }
    })
}

/// Metadata of a log that a reader needs to continue.
fn meta(reply: Value) -> MetaObject {
    MetaObject(JsonObject::from_iter([("sshjobs/log".to_owned(), reply)]))
}

/// Converts an error to JSON-RPC's form.
pub(crate) fn told(error: &Error) -> ErrorData {
    told_of(error, None)
}

/// Converts an error to JSON-RPC's form. Adds the resource's URI, if one is given.
pub(crate) fn told_of<'a>(error: &Error, uri: impl Into<Option<&'a str>>) -> ErrorData {
    let mut data = json!(error);
    if let Some(uri) = uri.into() {
        data["uri"] = uri.into();
    }
    let is_unknown = [Code::UnknownJob, Code::ExpiredJob, Code::NotFound].contains(&error.code);
    let constructor = if is_unknown {
        ErrorData::resource_not_found
    } else {
        ErrorData::invalid_params
    };
    constructor(error.to_string(), Some(data))
}

/// Completes a variable of a template, or an argument of a prompt, by its name: ids of jobs, names
/// of hosts, tags, streams.
pub(crate) async fn complete(
    service: &Service,
    request: CompleteRequestParams,
) -> Result<CompleteResult, ErrorData> {
    let known: Vec<String> = match request.argument.name.as_str() {
        "job_id" => {
            let request = JobsRequest {
                limit: Some(1000),
                // A completion must not wait for hosts.
                cached: true,
                ..JobsRequest::default()
            };
            let jobs = service.jobs(request).await.map_err(|error| told(&error))?.jobs;
            jobs.into_iter().map(|job| job.job_id).collect()
        }
        "stream" => ["both", "stdout", "stderr"].map(str::to_owned).into(),
        "host" => hosts(service).await?.into_iter().map(|(name, _)| name).collect(),
        "tag" => {
            let mut tags: Vec<String> =
                hosts(service).await?.into_iter().flat_map(|(_, tags)| tags).collect();
            tags.sort_unstable();
            tags.dedup();
            tags
        }
        _ => return Ok(CompleteResult::default()),
    };
    let mut values: Vec<String> = known
        .into_iter()
        .filter(|value| value.starts_with(&request.argument.value))
        .collect();
    let total = values.len();
    values.truncate(CompletionInfo::MAX_VALUES);
    let has_more = values.len() < total;
    let total = u32::try_from(total).ok();
    let completion = CompletionInfo::with_pagination(values, total, has_more)
        .map_err(|error| ErrorData::internal_error(error, None))?;
    Ok(CompleteResult::new(completion))
}

async fn hosts(service: &Service) -> Result<Vec<(String, Vec<String>)>, ErrorData> {
    let hosts = service
        .hosts(HostsRequest::default())
        .await
        .map_err(|error| told(&error))?
        .hosts;
    Ok(hosts.into_iter().map(|host| (host.name, host.tags)).collect())
}
