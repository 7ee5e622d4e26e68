//! Replies as models read them: times in words, and nothing that costs tokens and says nothing.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};
use sshjobs_wire::{Clamped, in_largest_unit};

/// Fields with milliseconds since the Unix epoch. Models read them as texts.
const TIMES: [&str; 5] = [
    "ended_at",
    "first_output_at",
    "last_output_at",
    "last_seen_at",
    "started_at",
];
/// Facts of a host's connection that a list of hosts leaves out.
const OF_CONNECTIONS: [&str; 5] = ["cipher", "host_key", "kex", "server", "strict_kex"];
/// Most bytes of output in a reply: clients cut longer results, or refuse them.
const MOST_BYTES: i64 = 81_920;

/// Limits the bytes that a call asks for. Returns the change.
pub(crate) fn cap_bytes(arguments: &mut Map<String, Value>) -> Option<Clamped> {
    let asked = arguments
        .get("max_bytes")
        .and_then(Value::as_i64)
        .filter(|asked| *asked > MOST_BYTES)?;
    arguments.insert("max_bytes".to_owned(), MOST_BYTES.into());
    Some(Clamped {
        field: "max_bytes".to_owned(),
        asked: Some(asked),
        used: Some(MOST_BYTES),
        read_as: None,
    })
}

/// A reply for a model: times as texts, with the age of a job; hosts of a list in short.
pub(crate) fn for_model(reply: &mut Value) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if let Some(hosts) = reply.get_mut("hosts").and_then(Value::as_array_mut)
        && hosts.len() > 1
    {
        for host in hosts.iter_mut().filter_map(Value::as_object_mut) {
            host.retain(|name, _| !OF_CONNECTIONS.contains(&name.as_str()));
        }
    }
    tell_times(reply, now);
}

fn tell_times(value: &mut Value, now: Duration) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| tell_times(value, now)),
        Value::Object(fields) => {
            let started = fields.get("started_at").and_then(Value::as_u64);
            for (name, value) in fields.iter_mut() {
                match value.as_u64().filter(|_| TIMES.contains(&name.as_str())) {
                    Some(time) => *value = utc(Duration::from_millis(time)).into(),
                    None => tell_times(value, now),
                }
            }
            if let Some(started) = started.filter(|_| is_entry(fields)) {
                let age = now.saturating_sub(Duration::from_millis(started));
                fields.insert("age".to_owned(), in_largest_unit(age).into());
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The schema of such a reply.
pub(crate) fn schema_for_model(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(schema_for_model),
        Value::Object(fields) => {
            if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
                for (name, property) in properties.iter_mut() {
                    if TIMES.contains(&name.as_str()) {
                        *property = json!({"type": "string"});
                    }
                }
                if is_entry(properties) {
                    properties.insert("age".to_owned(), json!({"type": "string"}));
                }
            }
            fields.values_mut().for_each(schema_for_model);
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Whether an object is a job of a list, or its schema.
fn is_entry(fields: &Map<String, Value>) -> bool {
    fields.contains_key("job_id") && fields.contains_key("command")
}

/// A time in UTC, to the second (ISO 8601).
fn utc(since_epoch: Duration) -> String {
    humantime::format_rfc3339_seconds(UNIX_EPOCH + since_epoch).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_texts_and_jobs_have_an_age() {
        let mut reply = json!({"jobs": [{"job_id": "x", "command": "y", "started_at": 1_764_000_000_000_u64, "total_lines": 5}]});
        for_model(&mut reply);
        let job = &reply["jobs"][0];
        assert_eq!(job["started_at"], "2025-11-24T16:00:00Z");
        assert!(job["age"].is_string() && job["total_lines"] == 5, "{job}");
    }

    #[test]
    fn more_bytes_than_a_client_takes_are_not_asked_for() {
        let mut arguments = json!({"max_bytes": 262_144}).as_object().cloned().unwrap();
        assert_eq!(cap_bytes(&mut arguments).unwrap().used, Some(81_920));
        assert_eq!(cap_bytes(&mut arguments), None);
    }
}
