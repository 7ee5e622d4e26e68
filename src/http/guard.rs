use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::uri::Authority;
use axum::http::{HeaderMap, Method, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::failures::Failures;
use super::in_flight::{InFlight, Ticket};
use super::metrics::Metrics;
use super::names::Names;
use super::peer::Peer;
use super::reject;
use super::status::Failure;
use crate::jobs::{Caller, Rights, Role};
use crate::tokens::Tokens;
use crate::wire::{Code, Error, ReachedAt, Service};

/// Stands before everything that needs a caller.
pub(super) struct Guard {
    pub(super) service: Service,
    pub(super) names: Names,
    pub(super) base: Base,
    /// None: everybody who can connect is the operator.
    pub(super) tokens: Option<Tokens>,
    /// The most that anybody may do.
    pub(super) most: Role,
    pub(super) failures: Failures,
    pub(super) in_flight: Arc<InFlight>,
    pub(super) metrics: Arc<Metrics>,
    /// The server is about to end: calls that come now are for the next one.
    pub(super) closing: CancellationToken,
}

/// What stands before every path.
pub(super) struct Base {
    pub(super) tls: bool,
    pub(super) prefix: String,
    /// All of it, as browsers have to name it.
    pub(super) public: Option<String>,
}

impl Base {
    fn reached_at(&self, host: Option<Authority>) -> Option<ReachedAt> {
        let scheme = if self.tls { "https" } else { "http" };
        let seen = || host.map(|host| format!("{scheme}://{host}{}", self.prefix));
        self.public.clone().or_else(seen).map(ReachedAt)
    }
}

/// Bytes of a body: more than a write of a mebibyte takes.
const MOST_BODY: usize = 4 << 20;
/// Time limit for a body to arrive.
const BODY_TIME: Duration = Duration::from_secs(30);

/// Lets a request in with its caller's [`Service`], or says why not.
pub(super) async fn guard(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    match guard.admit(request).await {
        Ok((request, ticket)) => {
            let response = next.run(request).await;
            match ticket {
                Some(ticket) => ticket.until_sent(response),
                None => response,
            }
        }
        Err(failure) => failure.into_response(),
    }
}

/// Lets a request in that needs no caller, unless it is for another host or comes from another page.
pub(super) async fn check_names(State(guard): State<Arc<Guard>>, request: Request, next: Next) -> Response {
    let peer = request.extensions().get::<Peer>().copied().unwrap_or(Peer::Socket);
    match guard.check_names(&request, peer) {
        Ok(_) => next.run(request).await,
        Err(error) => Failure::from(error).into_response(),
    }
}

impl Guard {
    async fn admit(&self, request: Request) -> Result<(Request, Option<Ticket>), Failure> {
        if self.closing.is_cancelled() {
            return Err(reject::closing().into());
        }
        let peer = request.extensions().get::<Peer>().copied().unwrap_or(Peer::Socket);
        let reached_at = self.check_names(&request, peer)?;
        let service = self.service_of(request.headers(), peer)?;
        let is_call = request.method() == Method::POST;
        let caller = service.library().caller().clone();
        let (mut parts, body) = request.into_parts();
        parts.extensions.insert(service);
        if let Some(reached_at) = reached_at {
            parts.extensions.insert(reached_at);
        }
        // Streams are bounded with their connections.
        if !is_call {
            return Ok((Request::from_parts(parts, body), None));
        }
        let ticket = self.in_flight.enter(&caller).ok_or_else(reject::too_many_calls)?;
        let body = read(body).await?;
        Ok((Request::from_parts(parts, body), Some(ticket)))
    }

    /// Where the client has found the server; nowhere that a browser could go, when over the socket.
    fn check_names(&self, request: &Request, peer: Peer) -> Result<Option<ReachedAt>, Error> {
        let host = self.names.host(request.uri(), request.headers());
        if peer != Peer::Socket && host.is_none() {
            return Err(reject::wrong_host());
        }
        if !self.names.allow_origin(request.headers(), host.as_ref()) {
            return Err(reject::wrong_origin());
        }
        Ok(self.base.reached_at(host.filter(|_| peer != Peer::Socket)))
    }

    /// The service as the caller may use it.
    fn service_of(&self, headers: &HeaderMap, peer: Peer) -> Result<Service, Error> {
        let Some(tokens) = &self.tokens else { return Ok(self.service.clone()) };
        let found = match bearer(headers) {
            None => Err(reject::without_token()),
            Some(token) => match tokens.caller_of(token) {
                Ok(Ok((caller, rights))) => Ok((caller, rights)),
                Ok(Err(why)) => Err(reject::refused(why)),
                Err(error) => Err(reject::tokens_unreadable(&error)),
            },
        };
        let (caller, rights): (Caller, Rights) = found.map_err(|error| {
            if error.code == Code::Unauthenticated { self.refused(error, peer) } else { error }
        })?;
        Ok(self.service.of(caller, Rights { role: rights.role.min(self.most), ..rights }))
    }

    /// Counts who was not let in.
    fn refused(&self, error: Error, peer: Peer) -> Error {
        self.metrics.count_refused_login();
        let address = match peer {
            Peer::Network(address) => Some(address),
            Peer::Socket => None,
        };
        if self.failures.note(address) {
            tracing::info!(?peer, "not let in: {}", error.message);
            error
        } else {
            reject::too_many_failures()
        }
    }
}

/// The token of a request (RFC 6750, section 2.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    // Two of them: it is not said who calls.
    if headers.get_all(header::AUTHORIZATION).iter().count() > 1 {
        return None;
    }
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Takes a whole body in, within bounds of size and time.
async fn read(body: Body) -> Result<Body, Failure> {
    match timeout(BODY_TIME, to_bytes(body, MOST_BODY)).await {
        Ok(Ok(bytes)) => Ok(Body::from(bytes)),
        Ok(Err(_)) => Err(reject::body_too_large(MOST_BODY)),
        Err(_) => Err(reject::body_too_slow()),
    }
}
