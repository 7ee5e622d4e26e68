use std::sync::Arc;

use rmcp::RoleServer;
use rmcp::handler::server::tool::{schema_for_input, schema_for_output};
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, MetaObject};
use rmcp::service::RequestContext;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::progress::tell_progress;
use super::text::Text;
use crate::api::{Code, Error, Service};

/// Parses a tool's arguments, makes the call, and says what came of it; meanwhile tells the progress, when the caller wants
/// to know. A cancelled call ends at once; what it waited for goes on.
pub(super) async fn answer<Request, Reply>(
    service: &Service,
    mut arguments: JsonObject,
    context: RequestContext<RoleServer>,
    call: impl AsyncFnOnce(Request) -> Result<Reply, Error>,
) -> CallToolResult
where
    Request: DeserializeOwned,
    Reply: Serialize + Text,
{
    // Models write null for what they leave away.
    arguments.retain(|_, value| !value.is_null());
    arguments.values_mut().for_each(whole_number);
    let job_id = arguments.get("job_id").and_then(Value::as_str).map(str::to_owned);
    let request = match serde_path_to_error::deserialize(Value::Object(arguments)) {
        Ok(request) => request,
        Err(error) => return failure(&bad_arguments(&error)),
    };
    tokio::select! {
        biased;
        // Nobody reads this: the client has cancelled the request.
        () = context.ct.cancelled() => {
            tracing::debug!("the call was cancelled");
            failure(&Error::new(Code::Timeout, "the call was cancelled", "the job goes on"))
        }
        never = tell_progress(service, job_id.as_deref(), &context) => never,
        reply = call(request) => match reply {
            Ok(reply) => success(&reply),
            Err(error) => failure(&error),
        },
    }
}

/// Under which key of `_meta` programs find an error as an object.
const ERROR_KEY: &str = "sshjobs/error";

/// Some clients know only floating point numbers.
fn whole_number(value: &mut Value) {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let whole = |number: &f64| number.fract() == 0.0 && number.abs() <= EXACT;
    if let Some(number) = value.as_f64().filter(|number| value.is_f64() && whole(number)) {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and in range")]
        let number = number as i64;
        *value = number.into();
    }
}

fn bad_arguments(error: &serde_path_to_error::Error<serde_json::Error>) -> Error {
    let message = in_words_of_json(&without_value(&error.inner().to_string()));
    let path = error.path().to_string();
    let message = if path == "." { message } else { format!("{path}: {message}") };
    Error::new(Code::InvalidArgument, message, "see the tool's input schema for names, types and ranges")
}

/// What is expected, in words that are not Rust's.
fn in_words_of_json(message: &str) -> String {
    let Some((start, expected)) = message.rsplit_once("expected ") else { return message.to_owned() };
    let expected = match expected {
        "i64" | "u64" | "u32" | "f64" => "a number",
        "a sequence" => "a list",
        "a map" => "an object",
        other => other,
    };
    format!("{start}expected {expected}")
}

/// serde quotes a value of the wrong type, which may be somebody's password.
fn without_value(message: &str) -> String {
    let quotes = |c| matches!(c, '`' | '"');
    match (message.find(quotes), message.rfind(", expected")) {
        (Some(start), Some(end)) if message.starts_with("invalid ") && start < end => {
            let (kind, _) = message.split_at(start);
            let (_, expected) = message.split_at(end);
            format!("{}{expected}", kind.trim_end())
        }
        _ => message.to_owned(),
    }
}

fn success(reply: &(impl Serialize + Text)) -> CallToolResult {
    let mut result = CallToolResult::success(vec![ContentBlock::text(reply.text())]);
    result.structured_content = Some(to_value(reply));
    result
}

fn failure(error: &Error) -> CallToolResult {
    // Not as structured content: clients check that against the tool's output schema, which is for replies.
    let meta = JsonObject::from_iter([(ERROR_KEY.to_owned(), to_value(error))]);
    let mut result = CallToolResult::error(vec![ContentBlock::text(error.to_string())]);
    result.meta = Some(MetaObject(meta));
    result
}

fn to_value(value: &impl Serialize) -> Value {
    serde_json::to_value(value).expect("a reply is plain data")
}

/// The schema of a tool's arguments.
pub(super) fn input<Request: JsonSchema + 'static>() -> Arc<JsonObject> {
    let schema = schema_for_input::<Request>().expect("a request is an object");
    plain(&schema, &[])
}

/// The schema of a tool's structured content: names and types. What they mean the names say, and every word here is one that
/// each model has to read.
pub(super) fn output<Reply: JsonSchema + 'static>() -> Arc<JsonObject> {
    let mut schema = Value::Object((*plain(&schema_for_output::<Reply>(), &["description", "enum"])).clone());
    for property in properties(&mut schema) {
        // What is listed is told by its names and types, and what lies deeper by its type.
        match property.get_mut("items") {
            Some(items) => properties(items).for_each(only_type),
            None => only_type(property),
        }
    }
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

fn properties(schema: &mut Value) -> impl Iterator<Item = &mut Value> {
    let properties = schema.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(|properties| properties.values_mut())
}

fn only_type(schema: &mut Value) {
    if let Value::Object(fields) = schema {
        fields.retain(|name, _| name == "type");
    }
}

/// Takes away what says nothing to a model or makes clients complain, and all of `unwanted`; and writes every choice of
/// documented words (`oneOf` with a `const` each) as a plain `enum`, which all clients take.
fn plain(schema: &JsonObject, unwanted: &[&str]) -> Arc<JsonObject> {
    let mut schema = Value::Object(schema.clone());
    flatten(&mut schema, unwanted);
    Arc::new(schema.as_object().cloned().unwrap_or_default())
}

fn flatten(schema: &mut Value, unwanted: &[&str]) {
    let Value::Object(object) = schema else { return };
    object.retain(|name, value| match name.as_str() {
        // Clients warn of formats that they don't know, such as uint64; what is left away has no default worth a word.
        "format" | "$schema" | "default" => false,
        "minimum" => value.as_f64().is_some_and(|minimum| minimum > 0.0),
        name => !unwanted.contains(&name),
    });
    let words: Option<Vec<_>> = object
        .get("oneOf")
        .and_then(Value::as_array)
        .and_then(|choices| choices.iter().map(|choice| choice.get("const").cloned()).collect());
    if let Some(words) = words {
        object.remove("oneOf");
        object.insert("type".to_owned(), "string".into());
        if !unwanted.contains(&"enum") {
            object.insert("enum".to_owned(), words.into());
        }
    }
    for name in ["items", "additionalProperties"] {
        if let Some(inner) = object.get_mut(name) {
            flatten(inner, unwanted);
        }
    }
    // A property may be called like a keyword.
    let properties = object.get_mut("properties").and_then(Value::as_object_mut);
    properties.into_iter().flat_map(|all| all.values_mut()).for_each(|property| flatten(property, unwanted));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_the_wrong_type_is_not_quoted() {
        #[derive(Debug, serde::Deserialize)]
        struct Request {
            #[expect(dead_code, reason = "only its type matters")]
            data: String,
        }
        for secret in ["31337", "[31337]", "{\"31337\": \"`31337`, expected\"}", "true"] {
            let arguments: Value = serde_json::from_str(&format!("{{\"data\": {secret}}}")).unwrap();
            let error = serde_path_to_error::deserialize::<_, Request>(arguments).unwrap_err();
            let message = bad_arguments(&error).message;
            assert!(
                message.starts_with("data: invalid type: ") && message.ends_with("expected a string"),
                "{message}"
            );
            assert!(!message.contains("31337"), "{message}");
        }
        let flag = serde_path_to_error::deserialize::<_, bool>(serde_json::json!("a\"`, expected b"));
        assert_eq!(bad_arguments(&flag.unwrap_err()).message, "invalid type: string, expected a boolean");
    }
}
