use std::sync::Arc;

use rmcp::handler::server::tool::{schema_for_input, schema_for_output};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject};
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use super::text::Text;
use crate::api::{Code, Error};

/// Parses a tool's arguments, makes the call, and says what came of it. A cancelled call ends at once; what it waited for
/// goes on.
pub(super) async fn answer<Request, Reply>(
    mut arguments: JsonObject,
    cancelled: CancellationToken,
    call: impl AsyncFnOnce(Request) -> Result<Reply, Error>,
) -> CallToolResult
where
    Request: DeserializeOwned,
    Reply: Serialize + Text,
{
    // Models write null for what they leave away.
    arguments.retain(|_, value| !value.is_null());
    let request = match serde_json::from_value(serde_json::Value::Object(arguments)) {
        Ok(request) => request,
        Err(error) => return failure(&bad_arguments(&error)),
    };
    tokio::select! {
        biased;
        // Nobody reads this: the client has cancelled the request.
        () = cancelled.cancelled() => failure(&Error::new(Code::Timeout, "the call was cancelled", "the job goes on")),
        reply = call(request) => match reply {
            Ok(reply) => success(&reply),
            Err(error) => failure(&error),
        },
    }
}

fn bad_arguments(error: &serde_json::Error) -> Error {
    Error::new(
        Code::InvalidArgument,
        error.to_string(),
        "see the tool's input schema for names, types and ranges",
    )
}

fn success(reply: &(impl Serialize + Text)) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(reply.text())]);
    result.structured_content = Some(to_value(reply));
    result
}

fn failure(error: &Error) -> CallToolResult {
    let mut result = CallToolResult::error(vec![ContentBlock::text(error.to_string())]);
    result.structured_content = Some(to_value(error));
    result
}

fn to_value(value: &impl Serialize) -> serde_json::Value {
    serde_json::to_value(value).expect("a reply is plain data")
}

/// The schema of a tool's arguments.
pub(super) fn input<Request: JsonSchema + 'static>() -> Arc<JsonObject> {
    plain(&schema_for_input::<Request>().expect("a request is an object"))
}

/// The schema of a tool's structured content.
pub(super) fn output<Reply: JsonSchema + 'static>() -> Arc<JsonObject> {
    plain(&schema_for_output::<Reply>())
}

/// Writes every choice of documented words (`oneOf` with a `const` each) as a plain `enum`, which all clients take.
fn plain(schema: &JsonObject) -> Arc<JsonObject> {
    let mut schema = serde_json::Value::Object(schema.clone());
    flatten_choices(&mut schema);
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

fn flatten_choices(schema: &mut serde_json::Value) {
    if let serde_json::Value::Object(object) = schema {
        let words: Option<Vec<_>> = object
            .get("oneOf")
            .and_then(serde_json::Value::as_array)
            .and_then(|choices| choices.iter().map(|choice| choice.get("const").cloned()).collect());
        if let Some(words) = words {
            object.remove("oneOf");
            object.insert("type".to_owned(), "string".into());
            object.insert("enum".to_owned(), words.into());
        }
        object.values_mut().for_each(flatten_choices);
    } else if let serde_json::Value::Array(items) = schema {
        items.iter_mut().for_each(flatten_choices);
    }
}
