use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::model::{
    CallToolResult, ContentBlock, JsonObject, MetaObject, ProtocolVersion, Resource,
};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use super::for_model::{cap_bytes, for_program, schema_for_program};
use super::progress::tell_progress;
use super::text::Text;
use crate::resources::ResourceUri;
use sshjobs_wire::{
    Clamped, Code, Error, Service, WireRequest, note_texts, read_texts, reply_schema,
};

/// Parses a tool's arguments, performs the call and returns its result. Reports progress meanwhile,
/// if the caller requested it. A cancelled call ends at once; its job continues.
pub(crate) async fn answer<R, Reply>(
    service: &Service,
    arguments: JsonObject,
    context: RequestContext<RoleServer>,
    call: impl AsyncFnOnce(R) -> Result<Reply, Error>,
) -> CallToolResult
where
    R: WireRequest,
    Reply: Serialize + Text,
{
    let mut arguments = arguments;
    let mut texts = read_texts::<R>(&mut arguments);
    texts.extend(cap_bytes(&mut arguments));
    let job_id = arguments.get("job_id").and_then(Value::as_str).map(str::to_owned);
    let request = match R::parse(arguments) {
        Ok(request) => request,
        Err(error) => return failure(&error),
    };
    tokio::select! {
        biased;
        // The client has cancelled the request and ignores this.
        () = context.ct.cancelled() => {
            tracing::debug!("the call was cancelled");
            failure(&Error::new(Code::Timeout, "the call was cancelled", "the job continues"))
        }
        never = tell_progress(service, job_id.as_deref(), &context) => never,
        reply = call(request) => match reply {
            Ok(reply) => {
                let mut result = with_texts(success(&reply), texts);
                if takes_links(&context) {
                    result.content.extend(reply.linked_job().map(link_to_log));
                }
                result
            }
            Err(error) => failure(&error),
        },
    }
}

/// Whether a client of this revision knows links to resources in results.
fn takes_links(context: &RequestContext<RoleServer>) -> bool {
    context
        .protocol_version()
        .is_some_and(|version| version >= ProtocolVersion::V_2025_06_18)
}

/// A link to the whole log of a job.
fn link_to_log(job_id: &str) -> ContentBlock {
    let log = Resource::new(ResourceUri::of_log(job_id), job_id).with_mime_type("text/plain");
    ContentBlock::resource_link(log)
}

/// A result that says which texts were read as another type.
fn with_texts(mut result: CallToolResult, texts: Vec<Clamped>) -> CallToolResult {
    if !texts.is_empty() {
        let told = serde_json::to_string(&texts).expect("names and types are plain data");
        result.content.push(ContentBlock::text(format!("clamped={told}")));
    }
    if let Some(reply) = &mut result.structured_content {
        note_texts(reply, texts);
    }
    result
}

/// Key in `_meta` under which programs find an error as an object.
const ERROR_KEY: &str = "sshjobs/error";

pub(crate) fn success(reply: &(impl Serialize + Text)) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(reply.text())]);
    let mut structured = to_value(reply);
    for_program(&mut structured);
    result.structured_content = Some(structured);
    result
}

pub(crate) fn failure(error: &Error) -> CallToolResult {
    // Not as structured content: clients validate that against the tool's output schema, which
    // describes replies.
    let meta = JsonObject::from_iter([(ERROR_KEY.to_owned(), to_value(error))]);
    let mut result = CallToolResult::error(vec![ContentBlock::text(error.to_string())]);
    result.meta = Some(MetaObject(meta));
    result
}

fn to_value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("a reply is plain data")
}

/// The schema of a tool's arguments without `hidden`, which are accepted but not shown.
pub(crate) fn input_without<R: WireRequest>(hidden: &[&str]) -> Arc<JsonObject> {
    let mut schema = R::schema();
    if let Some(properties) = schema.get_mut("properties").and_then(|all| all.as_object_mut()) {
        properties.retain(|name, _| !hidden.contains(&name.as_str()));
    }
    Arc::new(schema)
}

/// The schema of a tool's structured content.
pub(crate) fn output<Reply: JsonSchema>() -> Arc<JsonObject> {
    let mut schema = Value::Object(reply_schema::<Reply>());
    schema_for_program(&mut schema);
    let Value::Object(schema) = schema else { unreachable!("it stays an object") };
    Arc::new(schema)
}
