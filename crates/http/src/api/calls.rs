//! The verbs of the JSON API: one POST route each, with the requests and replies of the tools.

use axum::body::Bytes;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, Method, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use serde::Serialize;
use serde_json::error::Category;
use serde_json::{Map, Value, json};

use crate::status::HttpFailure;
use sshjobs_core::jobs::{Role, Verb};
use sshjobs_wire::{
    Error, Service, WireRequest, document_schema, for_each_verb, note_texts, read_texts,
};

/// Description of a verb in the API document.
pub(crate) struct DescribedVerb {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) request: Map<String, Value>,
    pub(crate) reply: Map<String, Value>,
}

/// Properties of a verb that the guard checks before the call.
pub(crate) struct ApiVerb {
    /// Minimum role. Some arguments need more.
    pub(crate) needs: Role,
    /// The verb that the policy and the audit log know it as.
    pub(crate) policy: Verb,
    /// What its body is.
    pub(crate) body: BodyKind,
}

/// What the body of a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BodyKind {
    /// Ignored.
    Nothing,
    /// Arguments as JSON, read whole before the call.
    Json,
    /// A content of any length, which the call reads as it arrives.
    Stream,
}

/// The verb at a path of the router, if it is one.
pub(crate) fn verb_at(path: &str, method: &Method) -> Option<ApiVerb> {
    let (_, name) = path.rsplit_once("/v1/")?;
    let (needs, policy, body) = match (name, method.as_str()) {
        // It runs a command, but over a WebSocket.
        ("session", "GET") => (Role::Run, Verb::Run, BodyKind::Nothing),
        // An approval lets a command through, so that a caller who may only read can't give one.
        ("approvals/{id}", "POST") => (Role::Run, Verb::Jobs, BodyKind::Json),
        (FILES, "GET" | "HEAD") => (Role::Run, Verb::Get, BodyKind::Nothing),
        (FILES, "PUT") => (Role::Run, Verb::Put, BodyKind::Stream),
        (name, "POST") => {
            // What the policy has no verb for is about the list of jobs.
            let policy = Verb::named(name).unwrap_or(Verb::Jobs);
            (needed_role(name)?, policy, BodyKind::Json)
        }
        // The router answers with 405.
        _ => return None,
    };
    Some(ApiVerb {
        needs,
        policy,
        body,
    })
}

/// The route of files, below `/v1/`.
const FILES: &str = "hosts/{host}/files/{*path}";

macro_rules! verbs {
    ($($name:ident: $request:ty => $reply:ty, $needs:ident, $repeat:ident, $summary:literal;)*) => {
        fn needed_role(verb: &str) -> Option<Role> {
            match verb {
                $(stringify!($name) => Some(Role::$needs),)*
                _ => None,
            }
        }

        /// `POST /NAME` for each verb, with the requests and replies of the tools.
        pub(crate) fn routes() -> Router {
            Router::new()$(.route(
                concat!("/", stringify!($name)),
                post(async |Extension(service): Extension<Service>, body: Bytes| {
                    answer(&body, async |request: $request| service.$name(request).await).await
                }),
            ))*
            // The guard limits bodies, and reports it in JSON.
            .layer(DefaultBodyLimit::disable())
        }

        /// All verbs, for the API document.
        pub(crate) fn described() -> Vec<DescribedVerb> {
            vec![$(DescribedVerb {
                name: stringify!($name),
                summary: $summary,
                request: <$request>::schema(),
                reply: document_schema::<$reply>(),
            }),*]
        }
    };
}

for_each_verb!(verbs);

pub(crate) async fn answer<R: WireRequest, Reply: Serialize>(
    body: &[u8],
    call: impl AsyncFnOnce(R) -> Result<Reply, Error>,
) -> Response {
    let answered = async {
        let mut arguments = arguments(body)?;
        let texts = read_texts::<R>(&mut arguments);
        let request = R::parse(arguments)?;
        Ok::<_, HttpFailure>((call(request).await?, texts))
    }
    .await;
    match answered {
        Ok((reply, texts)) if texts.is_empty() => Json(reply).into_response(),
        Ok((reply, texts)) => {
            let mut reply = json!(reply);
            note_texts(&mut reply, texts);
            Json(reply).into_response()
        }
        Err(failure) => failure.into_response(),
    }
}

/// Whether a body is declared as JSON. A form of a web page can't do that.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let declared = headers.get(header::CONTENT_TYPE).and_then(|declared| declared.to_str().ok());
    // The type without parameters such as charset.
    let essence = declared.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// The arguments of a call.
fn arguments(body: &[u8]) -> Result<Map<String, Value>, Error> {
    serde_json::from_slice(body).map_err(|error| {
        // serde's message may quote the body, so only its category is used.
        let message = match error.classify() {
            Category::Data => "the body is not a JSON object".to_owned(),
            Category::Eof => "the body is not a whole JSON object: it ends too early".to_owned(),
            Category::Syntax | Category::Io => {
                format!(
                    "the body can't be read as JSON: see line {}, column {}",
                    error.line(),
                    error.column()
                )
            }
        };
        Error::invalid(message, "send a JSON object; v1/openapi.json describes it")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_that_is_no_object_is_refused_without_quoting_it() {
        for (body, expected) in [
            ("[1]", "the body is not a JSON object"),
            ("null", "the body is not a JSON object"),
            ("", "the body is not a whole JSON object: it ends too early"),
            (
                r#"{"data": "secr"#,
                "the body is not a whole JSON object: it ends too early",
            ),
            (
                "{secret}",
                "the body can't be read as JSON: see line 1, column 2",
            ),
            (
                r#"{"data": secret}"#,
                "the body can't be read as JSON: see line 1, column 10",
            ),
        ] {
            let error = arguments(body.as_bytes()).unwrap_err();
            assert_eq!(error.message, expected, "{body}");
        }
        assert!(arguments(b"{}").unwrap().is_empty());
    }
}
