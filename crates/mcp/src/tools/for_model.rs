//! Replies as models and programs read them: a model reads times in words, a program as numbers.

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
/// The last millisecond of the year 9999, after which a time needs more digits.
const LAST_TIME: u64 = 253_402_300_799_999;
/// Facts of a host's connection that a list of hosts leaves out.
const OF_CONNECTIONS: [&str; 5] = ["cipher", "host_key", "kex", "server", "strict_kex"];
/// Fields of replies that no model needs: a schema does not name them.
const UNTOLD: [&str; 4] = [
    "first_output_at",
    "last_output_at",
    "listed_in",
    "total_bytes",
];
/// Facts of an ended job that a wait leaves out: who waits asks for the end.
const OF_OUTPUT: [&str; 4] = [
    "first_output_at",
    "last_output_at",
    "silent_ms",
    "total_bytes",
];
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

/// The text of a reply, for a model: as [`for_program`], with times as texts.
pub(crate) fn for_model(reply: &mut Value) {
    for_program(reply);
    tell_times(reply);
}

/// The structured content of a reply: with the age of each job, and with jobs of a wait and hosts of a list in short.
pub(crate) fn for_program(reply: &mut Value) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    if let Some(hosts) = reply.get_mut("hosts").and_then(Value::as_array_mut)
        && hosts.len() > 1
    {
        for host in hosts.iter_mut().filter_map(Value::as_object_mut) {
            host.retain(|name, _| !OF_CONNECTIONS.contains(&name.as_str()));
        }
    }
    let jobs = reply.get_mut("jobs").and_then(Value::as_array_mut);
    for usage in jobs
        .into_iter()
        .flatten()
        .filter_map(|job| job.get_mut("usage")?.as_array_mut())
    {
        // The series is for pictures.
        usage.drain(..usage.len().saturating_sub(1));
    }
    if reply.get("ended").is_some()
        && let Some(jobs) = reply.get_mut("jobs").and_then(Value::as_array_mut)
    {
        for job in jobs.iter_mut().filter_map(Value::as_object_mut) {
            // Of a job that runs on they say whether it hangs.
            if job.contains_key("ended_at") {
                job.retain(|name, _| !OF_OUTPUT.contains(&name.as_str()));
            }
        }
    }
    add_ages(reply, now);
}

fn add_ages(value: &mut Value, now: Duration) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| add_ages(value, now)),
        Value::Object(fields) => {
            fields.values_mut().for_each(|value| add_ages(value, now));
            let started = fields.get("started_at").and_then(Value::as_u64);
            if let Some(started) = started.filter(|started| *started > 0 && is_entry(fields)) {
                let age = now.saturating_sub(Duration::from_millis(started));
                fields.insert("age".to_owned(), in_largest_unit(age).into());
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn tell_times(value: &mut Value) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(tell_times),
        Value::Object(fields) => {
            for (name, value) in fields.iter_mut() {
                let time = value.as_u64().filter(|time| (1..=LAST_TIME).contains(time));
                match time.filter(|_| TIMES.contains(&name.as_str())) {
                    Some(time) => *value = utc(Duration::from_millis(time)).into(),
                    None => tell_times(value),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The schema of the structured content of such a reply.
pub(crate) fn schema_for_program(schema: &mut Value) {
    match schema {
        Value::Array(schemas) => schemas.iter_mut().for_each(schema_for_program),
        Value::Object(fields) => {
            if let Some(properties) = fields.get_mut("properties").and_then(Value::as_object_mut) {
                properties.retain(|name, _| !UNTOLD.contains(&name.as_str()));
                if is_entry(properties) {
                    properties.insert("age".to_owned(), json!({"type": "string"}));
                }
            }
            fields.values_mut().for_each(schema_for_program);
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
