use serde_json::{Map, Value, json};

use super::calls::{Described, described};
use super::status::status_of;
use crate::wire::{Code, Error, document_schema};

/// The description of the API (OpenAPI 3.1), made from the types that requests and replies have.
pub(super) fn document() -> Value {
    let mut paths: Map<String, Value> = described().into_iter().map(verb).collect();
    paths.insert("/jobs/{id}/stream".to_owned(), json!({"get": stream()}));
    paths.insert("/jobs/{id}/raw".to_owned(), json!({"get": raw()}));
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "sshjobs",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "Commands on remote hosts as jobs, whose output any number of readers follow by cursor.",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        // Relative to this document, wherever a proxy has put it.
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

fn verb(verb: Described) -> (String, Value) {
    let Described { name, summary, request, reply } = verb;
    let responses = responses(json!({
        "description": "The reply",
        "content": {"application/json": {"schema": reply}},
    }));
    let operation = json!({
        "operationId": name,
        "summary": summary,
        "requestBody": {"required": true, "content": {"application/json": {"schema": request}}},
        "responses": responses,
    });
    (format!("/{name}"), json!({"post": operation}))
}

/// The statuses that errors come with.
fn responses(ok: Value) -> Value {
    let mut responses = Map::from_iter([("200".to_owned(), ok)]);
    let codes = [
        Code::InvalidArgument,
        Code::Unauthenticated,
        Code::PolicyDenied,
        Code::UnknownJob,
        Code::JobEnded,
        Code::ExpiredJob,
        Code::RateLimited,
        Code::Io,
        Code::Unsupported,
        Code::Unreachable,
        Code::Capacity,
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

fn stream() -> Value {
    let text = json!({"type": "string"});
    let (streams, renders) =
        (json!({"enum": ["both", "stdout", "stderr"]}), json!({"enum": ["clean", "raw"]}));
    json!({
        "operationId": "stream",
        "summary": "A job's lines as server-sent events, to the end of the job",
        "description": "The id of an event is the number of its line; its data a record with line_no, stream, ts and text. Event `dropped` \
                        counts lines that are gone, `end` says how the job stands. 204 when Last-Event-ID was the end.",
        "parameters": [
            job(),
            parameter("since", "query", "Begin behind this line", &json!({"type": "integer"})),
            parameter("stream", "query", "Only this stream", &streams),
            parameter("render", "query", "clean: without control sequences", &renders),
            parameter("Last-Event-ID", "header", "Begin behind this line; goes before since", &text),
        ],
        "responses": responses(json!({
            "description": "The events",
            "content": {"text/event-stream": {"schema": text}},
        })),
    })
}

fn raw() -> Value {
    let (streams, truth) = (json!({"enum": ["stdout", "stderr"]}), json!({"type": "boolean"}));
    let mut which = parameter("stream", "query", "Which stream", &streams);
    which["required"] = true.into();
    let bytes = json!({"application/octet-stream": {}});
    let mut responses = responses(json!({
        "description": "The bytes there are. Header sshjobs-dropped-bytes: how many before them are gone",
        "content": bytes,
    }));
    responses["206"] = json!({"description": "The part that Range asks for", "content": bytes});
    responses["416"] = json!({"description": "Nothing is kept there"});
    json!({
        "operationId": "raw",
        "summary": "The exact bytes of one stream of a job",
        "parameters": [
            job(),
            which,
            parameter("follow", "query", "Go on to the end of the job", &truth),
            parameter("Range", "header", "A part: bytes=FIRST-LAST", &json!({"type": "string"})),
        ],
        "responses": responses,
    })
}
