//! Sessions of MCP belong to the replica at which they began. Their ids name it, so that every
//! replica can pass a session's requests on.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::header::PassedCaller;
use super::pass_on::send;
use crate::http::reject;
use crate::http::status::Failure;
use crate::jobs::Peers;
use crate::wire::Service;

/// The header with a session's id (MCP 2025-11-25, Streamable HTTP).
const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");
/// Separates the replica's name from the id within the replica.
const SEPARATOR: char = '~';

/// Passes a request of another replica's session on, and names this replica in the ids of its own
/// sessions.
pub(crate) async fn stick_to_replica(
    State(peers): State<Arc<dyn Peers>>,
    mut request: Request,
    next: Next,
) -> Response {
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

/// The replica of a request's session, and the session's id there.
fn session_of(headers: &HeaderMap) -> Option<(String, String)> {
    let (replica, id) = headers.get(SESSION)?.to_str().ok()?.split_once(SEPARATOR)?;
    Some((replica.to_owned(), id.to_owned()))
}

async fn pass_on(peers: &dyn Peers, replica: &str, mut request: Request) -> Response {
    let Some(service) = request.extensions().get::<Service>() else {
        return Failure::from(reject::without_token()).into_response();
    };
    let library = service.library();
    let caller = PassedCaller::new(library.caller(), library.rights());
    // The other replica must not see the client's token.
    request.headers_mut().remove(header::AUTHORIZATION);
    caller.write_to(request.headers_mut());
    match send(peers, replica, request).await {
        Ok(response) => response,
        Err(error) => Failure::from(error).into_response(),
    }
}
