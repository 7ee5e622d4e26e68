//! Requests that must reach one replica: those of MCP sessions, of calls that wait for a person's
//! answer, and of answer forms. The id of each names the replica.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use serde::Deserialize;

use super::header::PassedCaller;
use super::pass_on::send;
use crate::reject;
use crate::status::HttpFailure;
use sshjobs_core::jobs::Peers;
use sshjobs_wire::{Error, ReachedAt, Service};

/// The header with a session's id (MCP 2025-11-25, Streamable HTTP).
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// The header with the method of a message (MCP 2026-07-28).
const METHOD: HeaderName = HeaderName::from_static("mcp-method");
/// Separates the replica's name from the id within the replica.
const SEPARATOR: char = '~';

/// Passes a request of another replica's session on, and names this replica in the ids of its own
/// sessions.
pub(crate) async fn stick_to_replica(
    State(peers): State<Arc<dyn Peers>>,
    mut request: Request,
    next: Next,
) -> Response {
    let request_state = match state_in(request).await {
        Ok((same, state)) => {
            request = same;
            state
        }
        Err(error) => return HttpFailure::from(error).into_response(),
    };
    if let Some(replica) = request_state.as_deref().and_then(replica_in)
        && peers.is_other(replica)
    {
        return pass_on(&*peers, replica, request).await;
    }
    if let Some((replica, id)) = session_of(request.headers()) {
        if peers.is_other(&replica) {
            return pass_on(&*peers, &replica, request).await;
        }
        // A session of a replica that has died is unknown here, as the client expects.
        if let Ok(id) = HeaderValue::from_str(&id) {
            request.headers_mut().insert(SESSION, id);
        }
    }
    let mut response = next.run(request).await;
    if let Some(id) = response.headers().get(SESSION).and_then(|id| id.to_str().ok()) {
        let named = format!("{}{SEPARATOR}{id}", peers.own_name());
        if let Ok(named) = HeaderValue::from_str(&named) {
            response.headers_mut().insert(SESSION, named);
        }
    }
    response
}

/// The replica that an id names.
fn replica_in(id: &str) -> Option<&str> {
    id.split_once(SEPARATOR).map(|(replica, _)| replica)
}

/// The state with which a client returns to a call that has asked it for something (SEP-2322), and the
/// request again, whose body was read for that.
async fn state_in(request: Request) -> Result<(Request, Option<String>), Error> {
    // Only requests of revisions that have such states have this header.
    if !request.headers().contains_key(METHOD) {
        return Ok((request, None));
    }
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map_err(|error| {
        Error::invalid(format!("the body can't be read: {error}"), "send it again")
    })?;
    let body = body.to_bytes();
    let message: Option<Returning> = serde_json::from_slice(&body).ok();
    let state = message.and_then(|message| message.params?.request_state);
    Ok((Request::from_parts(parts, body.into()), state))
}

/// A message with a state.
#[derive(Deserialize)]
struct Returning {
    params: Option<ReturningParams>,
}

#[derive(Deserialize)]
struct ReturningParams {
    #[serde(rename = "requestState")]
    request_state: Option<String>,
}

/// Passes the request of a browser for an answer form on to the replica that its path names.
pub(crate) async fn answer_at_replica(
    State(peers): State<Arc<dyn Peers>>,
    request: Request,
    next: Next,
) -> Response {
    let form = request.uri().path().rsplit('/').next().unwrap_or_default().to_owned();
    match replica_in(&form) {
        Some(replica) if peers.is_other(replica) => {
            let response = send(&*peers, replica, request).await;
            response.unwrap_or_else(|error| HttpFailure::from(error).into_response())
        }
        _ => next.run(request).await,
    }
}

/// The replica of a request's session, and the session's id there.
fn session_of(headers: &HeaderMap) -> Option<(String, String)> {
    let (replica, id) = headers.get(SESSION)?.to_str().ok()?.split_once(SEPARATOR)?;
    Some((replica.to_owned(), id.to_owned()))
}

async fn pass_on(peers: &dyn Peers, replica: &str, mut request: Request) -> Response {
    let Some(service) = request.extensions().get::<Service>() else {
        return HttpFailure::from(reject::without_token()).into_response();
    };
    let caller = PassedCaller::of_service(service);
    caller.write_to(request.headers_mut());
    let reached_at = request.extensions().get::<ReachedAt>().cloned();
    PassedCaller::write_reached_at(request.headers_mut(), reached_at.as_ref());
    match send(peers, replica, request).await {
        Ok(response) => response,
        Err(error) => HttpFailure::from(error).into_response(),
    }
}
