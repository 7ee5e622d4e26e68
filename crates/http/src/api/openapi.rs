//! The OpenAPI document, generated from the schemas of requests and replies.

use std::sync::OnceLock;

use axum::body::Bytes;
use axum::http::StatusCode;
use serde_json::{Map, Value, json};

use super::calls::{DescribedVerb, described};
use crate::status::status_of;
use sshjobs_wire::{
    ApprovalEntry, ApprovalsReply, AuditReply, Code, Error, ExportFormat, NotificationsReply,
    PutReply, Screen, VoteRequest, WireRequest, document_schema,
};

/// The text of the API document. It is made once: its thousands of small allocations would come to lie between
/// those of open connections, and the allocator could not give that memory back.
pub(crate) fn text() -> Bytes {
    static TEXT: OnceLock<Bytes> = OnceLock::new();
    TEXT.get_or_init(|| document().to_string().into()).clone()
}

/// The API document (OpenAPI 3.1), generated from the types of requests and replies.
fn document() -> Value {
    let mut paths: Map<String, Value> = described().into_iter().map(verb).collect();
    paths.insert("/jobs/{id}/stream".to_owned(), json!({"get": stream()}));
    paths.insert("/jobs/{id}/raw".to_owned(), json!({"get": raw()}));
    paths.insert("/jobs/{id}/export".to_owned(), json!({"get": export()}));
    paths.insert(
        "/jobs/{id}/fetched/{path}".to_owned(),
        json!({"get": get_fetched()}),
    );
    paths.insert("/jobs/{id}/screen".to_owned(), json!({"get": screen()}));
    paths.insert("/jobs/{id}/updates".to_owned(), json!({"get": updates()}));
    paths.insert("/jobs/{id}/audit".to_owned(), json!({"get": audit()}));
    paths.insert("/notifications".to_owned(), json!({"get": notifications()}));
    paths.insert("/approvals".to_owned(), json!({"get": list_approvals()}));
    paths.insert(
        "/approvals/{id}".to_owned(),
        json!({"get": get_approval(), "post": vote()}),
    );
    paths.insert(
        "/hosts/{host}/files/{path}".to_owned(),
        json!({"get": get_file(), "put": put_file()}),
    );
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "sshjobs",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Commands on remote hosts as jobs, whose output any number of readers follow by cursor.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        // Relative to this document, so that it works behind a proxy.
        "servers": [{"url": "."}],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": {"Error": document_schema::<Error>()},
            "responses": {"Error": {
                "description": "Why the call failed, and what to do next",
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
            }},
        },
    })
}

fn verb(verb: DescribedVerb) -> (String, Value) {
    let DescribedVerb {
        name,
        summary,
        request,
        reply,
    } = verb;
    let mut responses = responses(json!({
        "description": "The reply",
        "content": {"application/json": {"schema": reply}},
    }));
    for status in OF_BODIES {
        responses[status.as_str()] = json!({"$ref": "#/components/responses/Error"});
    }
    let mut request = with_null(request);
    let alternatives: Vec<Value> = ALTERNATIVES
        .iter()
        .filter(|(verb, _)| *verb == name)
        .map(|(_, arguments)| json!({"anyOf": arguments.iter().map(given).collect::<Vec<_>>()}))
        .collect();
    if matches!(name, "get" | "put") {
        request["properties"]["path"]["minLength"] = 1.into();
    }
    if !alternatives.is_empty() {
        request.insert("allOf".to_owned(), alternatives.into());
    }
    let operation = json!({
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": true, "content": {"application/json": {"schema": request}}},
        "responses": responses,
    });
    (format!("/{name}"), json!({"post": operation}))
}

/// Arguments of which a verb needs one. The tools' schemas don't say that: some clients accept no `anyOf` there.
const ALTERNATIVES: [(&str, &[&str]); 7] = [
    ("run", &["host", "hosts"]),
    ("run", &["command", "template"]),
    ("spawn", &["host", "hosts"]),
    ("spawn", &["command", "template"]),
    ("tail", &["job_id", "job_ids"]),
    ("put", &["host", "hosts"]),
    ("put", &["text", "base64", "from", "edits"]),
];

/// A schema of objects in which an argument is given.
fn given(argument: &&str) -> Value {
    json!({"required": [argument], "properties": {*argument: {"not": {"type": "null"}}}})
}

/// Statuses for refused bodies.
const OF_BODIES: [StatusCode; 3] = [
    StatusCode::REQUEST_TIMEOUT,
    StatusCode::PAYLOAD_TOO_LARGE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
];

/// Allows null for optional arguments, as every call does. The tools' schemas don't say that: some
/// clients don't accept schemas with more than one type.
fn with_null(mut request: Map<String, Value>) -> Map<String, Value> {
    let required = request.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let properties = request.get_mut("properties").and_then(Value::as_object_mut);
    for (name, property) in properties.into_iter().flatten() {
        if required.iter().any(|required| required == name) {
            continue;
        }
        if let Some(kind) = property.get("type").cloned() {
            property["type"] = json!([kind, "null"]);
        }
        if let Some(words) = property.get_mut("enum").and_then(Value::as_array_mut) {
            // An enum that lacks null refuses it, even if `type` allows it.
            words.push(Value::Null);
        }
    }
    request
}

/// The statuses of errors.
fn responses(ok: Value) -> Value {
    let mut responses = Map::from_iter([("200".to_owned(), ok)]);
    let codes = [
        Code::InvalidArgument,
        Code::Unauthenticated,
        Code::PolicyDenied,
        Code::UnknownJob,
        Code::JobEnded,
        Code::ExpiredJob,
        Code::ChangedMeanwhile,
        Code::DiskFull,
        Code::RateLimited,
        Code::Io,
        Code::Unsupported,
        Code::Unreachable,
        Code::Capacity,
        Code::AuditFailed,
        Code::Timeout,
    ];
    for code in codes {
        let status = status_of(code).as_u16().to_string();
        responses.insert(status, json!({"$ref": "#/components/responses/Error"}));
    }
    Value::Object(responses)
}

fn parameter(name: &str, place: &str, description: &str, schema: &Value) -> Value {
    let is_required = place == "path";
    json!({"name": name, "in": place, "required": is_required, "description": description, "schema": schema})
}

fn job() -> Value {
    parameter("id", "path", "The job", &json!({"type": "string"}))
}

/// Largest integer that every JSON parser represents exactly (RFC 8259, section 6).
const MOST_EXACT: u64 = (1 << 53) - 1;

fn stream() -> Value {
    let text = json!({"type": "string"});
    let since = json!({"type": "integer", "minimum": 0, "maximum": MOST_EXACT});
    let last_seen = json!({"type": "string", "pattern": "^[0-9]{1,18}$"});
    let streams = json!({"enum": ["both", "stdout", "stderr"]});
    json!({
        "operationId": "stream",
        "summary": "A job's lines as server-sent events, to the end of the job",
        "description": "The id of an event is the number of its line; its data a record with line_no, stream, ts and text. Event `dropped` \
                        counts evicted lines, `end` has the final state. \
                        The status is 204 if Last-Event-ID is the last line of an ended job.",
        "parameters": [
            job(),
            parameter("since", "query", "Start after this line", &since),
            parameter("stream", "query", "Only this stream", &streams),
            render(),
            parameter("Last-Event-ID", "header", "Start after this line; takes precedence over \
                since", &last_seen),
        ],
        "responses": responses(json!({
            "description": "The events",
            "content": {"text/event-stream": {"schema": text}},
        })),
    })
}

fn render() -> Value {
    let description = "clean: without control sequences; spans: in pieces of one colour";
    parameter(
        "render",
        "query",
        description,
        &json!({"enum": ["clean", "raw", "spans"]}),
    )
}

fn updates() -> Value {
    let streams = json!({"enum": ["both", "stdout", "stderr"]});
    json!({
        "operationId": "updates",
        "summary": "The newest lines and the state of a job as server-sent events, at most 20 a second",
        "description": "For readers who look at the end. The data of an event is a reply of tail with \
                        up to 200 records; lines between two updates are skipped, and can be read with tail. \
                        The last event is `end`.",
        "parameters": [
            job(),
            parameter("stream", "query", "Only this stream", &streams),
            render(),
        ],
        "responses": responses(json!({
            "description": "The events",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        })),
    })
}

fn raw() -> Value {
    let streams = json!({"enum": ["stdout", "stderr"]});
    let truth = json!({"type": "boolean"});
    let mut which = parameter("stream", "query", "Which stream", &streams);
    which["required"] = true.into();
    let bytes = json!({"application/octet-stream": {}});
    let mut responses = responses(json!({
        "description": "The available bytes; sshjobs-dropped-bytes counts evicted ones before them",
        "content": bytes,
    }));
    responses["206"] = json!({"description": "The part that Range asks for", "content": bytes});
    responses["416"] = json!({"description": "The range is outside of the available bytes"});
    json!({
        "operationId": "raw",
        "summary": "The exact bytes of one stream of a job",
        "parameters": [
            job(),
            which,
            parameter("follow", "query", "Continue to the end of the job", &truth),
            parameter("Range", "header", "A part: bytes=FIRST-LAST", &json!({"type": "string"})),
        ],
        "responses": responses,
    })
}

/// Parameters of a file, with those of its conditions.
fn file_parameters(more: &[Value]) -> Value {
    let text = json!({"type": "string"});
    let path = "Absolute, without the first slash, or ~/ and a path below the home directory";
    let mut parameters = vec![
        parameter("host", "path", "The host", &text),
        parameter(
            "path",
            "path",
            path,
            &json!({"type": "string", "minLength": 1}),
        ),
        parameter("become", "query", "User of the host to become", &text),
        parameter(
            "become_method",
            "query",
            "The program that changes the user",
            &json!({"enum": ["sudo", "doas", "su"]}),
        ),
        parameter(
            "If-Match",
            "header",
            "Only if its ETag is one of these, or *",
            &text,
        ),
        parameter(
            "If-None-Match",
            "header",
            "Only if its ETag is none of these; *: only if there is no file",
            &text,
        ),
    ];
    parameters.extend_from_slice(more);
    Value::Array(parameters)
}

fn get_file() -> Value {
    let text = json!({"type": "string"});
    let bytes = json!({"application/octet-stream": {}});
    let mut responses = responses(json!({
        "description": "The content; ETag is its SHA-256",
        "content": bytes,
    }));
    responses["206"] = json!({"description": "The part that Range asks for", "content": bytes});
    responses["304"] = json!({"description": "The content has an ETag of If-None-Match"});
    responses["416"] = json!({"description": "The range is outside of the file"});
    json!({
        "operationId": "get_file",
        "summary": "The exact content of a file of a host",
        "parameters": file_parameters(&[
            parameter("Range", "header", "A part: bytes=FIRST-LAST", &text),
            parameter("If-Range", "header", "Range applies only to this ETag", &text),
        ]),
        "responses": responses,
    })
}

fn put_file() -> Value {
    let text = json!({"type": "string"});
    let truth = json!({"type": "boolean"});
    let reply = json!({"application/json": {"schema": document_schema::<PutReply>()}});
    let mut responses = responses(json!({
        "description": "The file was replaced, or has this content already",
        "content": reply,
    }));
    responses["201"] = json!({"description": "The file was created", "content": reply});
    json!({
        "operationId": "put_file",
        "summary": "Write a file of a host at once, of any size",
        "parameters": file_parameters(&[
            parameter("mode", "query", "Permissions in octal. Default: unchanged", &text),
            parameter("parents", "query", "Make missing directories", &truth),
            parameter("backup", "query", "Keep the old file beside the new one", &truth),
        ]),
        "requestBody": {"required": true, "content": {"application/octet-stream": {}}},
        "responses": responses,
    })
}

fn get_fetched() -> Value {
    let text = json!({"type": "string"});
    json!({
        "operationId": "get_fetched",
        "summary": "A file that a job gave back by fetch",
        "parameters": [job(), parameter("path", "path", "Its path in fetched", &text)],
        "responses": responses(json!({
            "description": "The content",
            "content": {"application/octet-stream": {}},
        })),
    })
}

fn export() -> Value {
    let formats = json!({"enum": ExportFormat::ALL.map(ExportFormat::as_str)});
    let text = json!({"schema": {"type": "string"}});
    let content: Map<String, Value> = ExportFormat::ALL
        .map(|format| (format.media_type().to_owned(), text.clone()))
        .into_iter()
        .collect();
    json!({
        "operationId": "export",
        "summary": "A job's output as a recording, as text or as JSON lines",
        "parameters": [job(), parameter("format", "query", "Default: asciicast-v2", &formats)],
        "responses": responses(json!({"description": "The file", "content": content})),
    })
}

fn audit() -> Value {
    json!({
        "operationId": "audit",
        "summary": "The lines of the audit log about a job, in words",
        "parameters": [job()],
        "responses": responses(json!({
            "description": "The lines",
            "content": {"application/json": {"schema": document_schema::<AuditReply>()}},
        })),
    })
}

fn notifications() -> Value {
    json!({
        "operationId": "notifications",
        "summary": "Notifications of the caller's jobs, and whether they have arrived",
        "responses": responses(json!({
            "description": "The notifications",
            "content": {"application/json": {"schema": document_schema::<NotificationsReply>()}},
        })),
    })
}

fn list_approvals() -> Value {
    let truth = json!({"type": "boolean"});
    json!({
        "operationId": "approvals",
        "summary": "Calls that wait for an approval",
        "description": "The caller's own ones, and for an approver of the policy those for its hosts.",
        "parameters": [parameter("all", "query", "Also those that are over", &truth)],
        "responses": responses(json!({
            "description": "The approvals",
            "content": {"application/json": {"schema": document_schema::<ApprovalsReply>()}},
        })),
    })
}

fn approval_id() -> Value {
    parameter("id", "path", "The approval", &json!({"type": "string"}))
}

fn get_approval() -> Value {
    json!({
        "operationId": "approval",
        "summary": "One approval, with the exact call",
        "parameters": [approval_id()],
        "responses": responses(json!({
            "description": "The approval",
            "content": {"application/json": {"schema": document_schema::<ApprovalEntry>()}},
        })),
    })
}

fn vote() -> Value {
    let mut responses = responses(json!({
        "description": "The approval, with the answer",
        "content": {"application/json": {"schema": document_schema::<ApprovalEntry>()}},
    }));
    for status in OF_BODIES {
        responses[status.as_str()] = json!({"$ref": "#/components/responses/Error"});
    }
    let request = with_null(VoteRequest::schema());
    json!({
        "operationId": "vote",
        "summary": "Approve or deny a call of another caller",
        "parameters": [approval_id()],
        "requestBody": {"required": true, "content": {"application/json": {"schema": request}}},
        "responses": responses,
    })
}

fn screen() -> Value {
    let number = json!({"type": "integer", "minimum": 0, "maximum": MOST_EXACT});
    json!({
        "operationId": "screen",
        "summary": "What a job's terminal shows",
        "description": "As JSON or, for `Accept: text/plain`, its rows.",
        "parameters": [
            job(),
            parameter("since_version", "query", "Only the rows that changed since this version", &number),
            parameter("wait_ms", "query", "Milliseconds to wait for a newer screen", &number),
            parameter("render", "query", "spans: also styled_rows, the rows in pieces of one style", &json!({"enum": ["clean", "raw", "spans"]})),
        ],
        "responses": responses(json!({
            "description": "The screen",
            "content": {
                "application/json": {"schema": document_schema::<Screen>()},
                "text/plain": {"schema": {"type": "string"}},
            },
        })),
    })
}
