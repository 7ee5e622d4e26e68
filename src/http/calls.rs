use axum::body::Bytes;
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Json, Router};
use serde::Serialize;
use serde_json::{Map, Value};

use super::reject;
use super::status::Failure;
use crate::wire::{
    Error, ForgetReply, ForgetRequest, HostsReply, HostsRequest, JobsReply, JobsRequest, ReadReply,
    ReadRequest, Request, RunReply, RunRequest, SearchReply, SearchRequest, Service, SignalReply,
    SignalRequest, SpawnReply, SpawnRequest, TailReply, TailRequest, WaitReply, WaitRequest, WriteReply,
    WriteRequest, document_schema,
};

/// What the description of the API says of a verb.
pub(super) struct Described {
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    pub(super) request: Map<String, Value>,
    pub(super) reply: Map<String, Value>,
}

macro_rules! verbs {
    ($($name:ident: $request:ty => $reply:ty, $summary:literal;)*) => {
        /// `POST /NAME` for each verb: the requests and replies of the tools.
        pub(super) fn routes() -> Router {
            Router::new()$(.route(
                concat!("/", stringify!($name)),
                post(async |Extension(service): Extension<Service>, headers: HeaderMap, body: Bytes| {
                    answer(&headers, &body, async |request: $request| service.$name(request).await).await
                }),
            ))*
        }

        /// All verbs, for the description of the API.
        pub(super) fn described() -> Vec<Described> {
            vec![$(Described {
                name: stringify!($name),
                summary: $summary,
                request: <$request>::schema(),
                reply: document_schema::<$reply>(),
            }),*]
        }
    };
}

verbs! {
    spawn: SpawnRequest => SpawnReply, "Start a job and return its id";
    run: RunRequest => RunReply, "Run a command and wait for its end";
    tail: TailRequest => TailReply, "Read the lines behind a cursor; wait for news";
    read: ReadRequest => ReadReply, "Read a part of the output by position";
    search: SearchRequest => SearchReply, "Find lines by pattern";
    write: WriteRequest => WriteReply, "Write to a job's stdin";
    signal: SignalRequest => SignalReply, "Signal a job's process tree";
    wait: WaitRequest => WaitReply, "Wait for the end of jobs";
    jobs: JobsRequest => JobsReply, "List jobs";
    forget: ForgetRequest => ForgetReply, "Give up a finished job";
    hosts: HostsRequest => HostsReply, "List hosts, or try one";
}

async fn answer<R: Request, Reply: Serialize>(
    headers: &HeaderMap,
    body: &[u8],
    call: impl AsyncFnOnce(R) -> Result<Reply, Error>,
) -> Response {
    let answered = async { Ok::<_, Failure>(call(R::parse(arguments(headers, body)?)?).await?) }.await;
    match answered {
        Ok(reply) => Json(reply).into_response(),
        Err(failure) => failure.into_response(),
    }
}

/// The arguments of a call. A form of a web page can't declare its body as JSON.
fn arguments(headers: &HeaderMap, body: &[u8]) -> Result<Map<String, Value>, Failure> {
    let declared = headers.get(header::CONTENT_TYPE).and_then(|declared| declared.to_str().ok());
    let essence = declared.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !essence.eq_ignore_ascii_case("application/json") {
        return Err(reject::not_json());
    }
    // What serde says beyond its category may quote the body.
    serde_json::from_slice(body).map_err(|error| {
        let message =
            format!("the body is no JSON object: {:?} error at column {}", error.classify(), error.column());
        Error::invalid(message, "send a JSON object; v1/openapi.json describes it").into()
    })
}
