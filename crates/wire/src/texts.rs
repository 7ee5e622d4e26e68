//! Arguments that arrive as texts although they are of another type. Some clients of agents send `"5000"`,
//! `"false"` and `"{…}"`.

use serde_json::{Map, Value};

use super::clamp::Clamped;
use super::request::WireRequest;

/// Replaces each text that is exactly a number, boolean, list or object, where the schema wants one. Returns what
/// was replaced, for the reply.
pub fn read_texts<R: WireRequest>(arguments: &mut Map<String, Value>) -> Vec<Clamped> {
    // The schema is needed only for a client that does so.
    if !arguments.values().any(|value| parsed(value).is_some()) {
        return Vec::new();
    }
    let schema = R::schema();
    let mut read = Vec::new();
    for (name, value) in arguments {
        let wanted = schema.get("properties").and_then(|properties| properties.get(name));
        let wanted = wanted.and_then(|property| property.get("type")).and_then(Value::as_str);
        if let Some(wanted) = wanted
            && let Some(other) = parsed(value)
            && let Some(kind) = kind_of(&other).filter(|kind| is_wanted(wanted, kind))
        {
            *value = other;
            read.push(Clamped::of_text(name, kind));
        }
    }
    read
}

/// Notes in a reply which texts were read as another type.
pub fn note_texts(reply: &mut Value, read: Vec<Clamped>) {
    if read.is_empty() {
        return;
    }
    let Some(reply) = reply.as_object_mut() else { return };
    let noted = reply.entry("clamped").or_insert_with(|| Value::Array(Vec::new()));
    if let Some(noted) = noted.as_array_mut() {
        noted.extend(read.iter().map(|text| serde_json::json!(text)));
    }
}

/// The value that a text is exactly, without spaces around it.
fn parsed(value: &Value) -> Option<Value> {
    let text = value.as_str().filter(|text| text.trim() == *text)?;
    serde_json::from_str(text).ok().filter(|value| kind_of(value).is_some())
}

fn kind_of(value: &Value) -> Option<&'static str> {
    match value {
        Value::Number(_) => Some("number"),
        Value::Bool(_) => Some("boolean"),
        Value::Array(_) => Some("list"),
        Value::Object(_) => Some("object"),
        Value::Null | Value::String(_) => None,
    }
}

/// Whether a type of JSON Schema is meant by this word.
fn is_wanted(wanted: &str, kind: &str) -> bool {
    matches!(
        (wanted, kind),
        ("integer" | "number", "number")
            | ("boolean", "boolean")
            | ("array", "list")
            | ("object", "object")
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::{RunRequest, WaitRequest};

    fn read<R: WireRequest>(arguments: Value) -> (Value, Vec<String>) {
        let mut arguments = arguments.as_object().cloned().unwrap();
        let read = read_texts::<R>(&mut arguments);
        let read = read.into_iter().map(|text| {
            let kind = text.read_as.unwrap();
            format!("{} {kind}", text.field)
        });
        (Value::Object(arguments), read.collect())
    }

    #[test]
    fn a_text_is_read_where_the_schema_wants_another_type() {
        let sent = json!({
            "host": "web1", "command": "true", "wait_ms": "5000", "pty": "false", "env": "{\"A\": \"1\"}",
        });
        let (arguments, told) = read::<RunRequest>(sent);

        let expected = json!({
            "host": "web1", "command": "true", "wait_ms": 5000, "pty": false, "env": {"A": "1"},
        });
        assert_eq!(arguments, expected, "the command stays a text");
        assert_eq!(told, ["env object", "pty boolean", "wait_ms number"]);
        let (arguments, _) = read::<WaitRequest>(json!({"job_ids": "[\"a\"]"}));
        assert_eq!(arguments, json!({"job_ids": ["a"]}));
    }

    #[test]
    fn a_text_that_is_not_exactly_such_a_value_is_left_to_be_refused() {
        for text in ["5 ", "x", "null", "[1", "", "\"5\"", "true"] {
            let sent = json!({"wait_ms": text});
            assert_eq!(
                read::<RunRequest>(sent.clone()),
                (sent, Vec::new()),
                "{text}"
            );
        }
    }
}
