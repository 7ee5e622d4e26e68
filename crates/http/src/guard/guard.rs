//! The guard before every request: Host, Origin, token, role, limits and body. Nothing passes
//! it without a caller.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::body::{Body, HttpBody};
use axum::extract::{MatchedPath, Request, State};
use axum::http::request::Parts;
use axum::http::uri::Authority;
use axum::http::{HeaderMap, HeaderValue, Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;
use http_body_util::{BodyExt, Limited};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde_json::Value;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::bodies::Bodies;
use super::challenge::{Lack, MCP, METADATA, add_challenge, metadata, path_of};
use super::failures::LoginFailures;
use super::in_flight::{InFlight, Ticket};
use super::login_cookie::{LoginCookie, is_from_own_page};
use super::logins::PageLogins;
use super::metrics::Metrics;
use super::names::AllowedNames;
use crate::api::calls::{self, ApiVerb, BodyKind};
use crate::connections::{Peer, hold_until_sent};
use crate::oidc::Oidc;
use crate::prefer::preferred_wait;
use crate::reject;
use crate::status::HttpFailure;
use sshjobs_core::jobs::{Caller, Rights, Role};
use sshjobs_wire::tokens::Tokens;
use sshjobs_wire::{Code, Error, ReachedAt, Service};

/// Checks every request that needs a caller.
pub(crate) struct RequestGuard {
    pub(crate) service: Service,
    pub(crate) names: AllowedNames,
    pub(crate) base: BaseUrl,
    /// `None`: every client is the operator.
    pub(crate) tokens: Option<Arc<Tokens>>,
    pub(crate) logins: PageLogins,
    /// Issuers whose tokens are accepted, too.
    pub(crate) oidc: Option<Oidc>,
    /// Maximum role of any caller.
    pub(crate) most: Role,
    pub(crate) failures: LoginFailures,
    pub(crate) in_flight: Arc<InFlight>,
    pub(crate) bodies: Bodies,
    pub(crate) metrics: Arc<Metrics>,
    /// Tasks that discard unread bodies.
    pub(crate) drains: TaskTracker,
    /// The server is shutting down: new calls are refused.
    pub(crate) closing: CancellationToken,
}

/// Parts of the URL at which browsers reach the server.
pub(crate) struct BaseUrl {
    pub(crate) tls: bool,
    pub(crate) prefix: String,
    /// Full public URL, for browsers.
    pub(crate) public: Option<String>,
}

impl BaseUrl {
    fn reached_at(&self, host: Option<Authority>) -> Option<ReachedAt> {
        let scheme = if self.tls { "https" } else { "http" };
        let url = match (&self.public, host) {
            (Some(public), _) => public.clone(),
            (None, Some(host)) => format!("{scheme}://{host}{}", self.prefix),
            (None, None) => return None,
        };
        Some(ReachedAt(url))
    }
}

/// Maximum bytes, and time, for discarding the rest of an unread body.
const MOST_DRAINED: usize = 64 << 10;
const DRAIN_TIME: Duration = Duration::from_secs(2);

/// Time limit for reading the file of tokens.
const TOKENS_TIME: Duration = Duration::from_secs(5);

/// The role of a caller whose token is valid, for the response if the request is refused. `None` if its
/// claims give no role.
#[derive(Clone, Copy)]
struct CallerRole(Option<Role>);

/// A request that passed the checks that need no body.
struct CheckedCaller {
    caller: Caller,
    body: BodyKind,
    /// Held until the call is answered. Streams are limited with their connections.
    ticket: Option<Ticket>,
}

/// Passes a request on with its caller's [`Service`], or returns why it is refused.
pub(crate) async fn guard(
    State(guard): State<Arc<RequestGuard>>,
    request: Request,
    next: Next,
) -> Response {
    let (mut parts, body) = request.into_parts();
    // Before the body is read, so that strangers can't use up the budget of bytes.
    let checked = match guard.check(&mut parts).await {
        Ok(checked) => checked,
        Err(failure) => {
            drain(body, &guard.drains);
            return guard.refuse(failure, &parts);
        }
    };

    // The body's budget is released when the call has been answered.
    let (body, _budget) = match checked.body {
        BodyKind::Json => match guard.bodies.read(&checked.caller, body).await {
            Ok((bytes, budget)) => {
                if let Some(verb) = guard.verb_of_forbidden_tool(&parts, &bytes) {
                    let failure = guard.lacks_role(&parts, &verb).await;
                    return guard.refuse(failure, &parts);
                }
                (Body::from(bytes), Some(budget))
            }
            Err(failure) => return failure.into_response(),
        },
        // It is never held as a whole.
        BodyKind::Stream => (body, None),
        BodyKind::Nothing => {
            drain(body, &guard.drains);
            (Body::empty(), None)
        }
    };

    // A call that panics is answered, too. Otherwise its client would see a broken connection
    // without a reason.
    let response = next.run(Request::from_parts(parts, body));
    let response = AssertUnwindSafe(response).catch_unwind().await;
    let response = response.unwrap_or_else(|_| reject::panicked().into_response());
    match checked.ticket {
        Some(ticket) => hold_until_sent(ticket, response),
        None => response,
    }
}

/// Reads the rest of a short unread body while the response is sent. hyper closes a connection
/// whose request was not read, and a client that still sends would see that instead of the
/// response.
fn drain(body: Body, drains: &TaskTracker) {
    if body.is_end_stream() {
        return;
    }
    let limited = Limited::new(body, MOST_DRAINED);
    drains.spawn(async move { timeout(DRAIN_TIME, limited.collect()).await.ok() });
}

/// Passes a request that needs no caller, unless it is for another host or comes from another page.
pub(crate) async fn check_names(
    State(guard): State<Arc<RequestGuard>>,
    request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().copied().unwrap_or(Peer::Socket);
    match guard.check_names(request.uri(), request.headers(), peer) {
        Ok(_) => next.run(request).await,
        Err(error) => HttpFailure::from(error).into_response(),
    }
}

impl RequestGuard {
    /// All checks that need no body. Adds the caller's service to the extensions.
    async fn check(&self, parts: &mut Parts) -> Result<CheckedCaller, HttpFailure> {
        if self.closing.is_cancelled() {
            return Err(reject::closing().into());
        }
        // The acceptor adds the peer to every request.
        let peer = parts.extensions.get::<Peer>().copied().unwrap_or(Peer::Socket);
        let reached_at = self.check_names(&parts.uri, &parts.headers, peer)?;
        let service = match self.service_for(parts, peer).await {
            Ok(service) => service,
            Err(error) => {
                if error.code == Code::PolicyDenied {
                    parts.extensions.insert(CallerRole(None));
                }
                return Err(error.into());
            }
        };
        let caller = service.library().caller().clone();
        parts.extensions.insert(CallerRole(Some(service.library().rights().role)));
        let path = parts.extensions.get::<MatchedPath>().map(|path| path.as_str().to_owned());
        let verb = check_verb(&service, parts, path.as_deref()).await?;
        let service = match preferred_wait(&parts.headers) {
            Some(wait) => service.with_context(|context| context.approval_wait = wait),
            None => service,
        };
        parts.extensions.insert(service);
        if let Some(reached_at) = reached_at {
            parts.extensions.insert(reached_at);
        }

        // Not each POST is a verb: MCP has its own path.
        let is_post = parts.method == Method::POST;
        let body = match verb {
            Some(verb) => verb.body,
            None if is_post && path.is_some() => BodyKind::Json,
            None => BodyKind::Nothing,
        };
        let ticket = if is_post || body == BodyKind::Stream {
            Some(self.in_flight.enter(&caller).ok_or_else(reject::too_many_calls)?)
        } else {
            None
        };
        Ok(CheckedCaller {
            caller,
            body,
            ticket,
        })
    }

    /// The response for a request that was refused. If issuers are configured, it says how to get a
    /// token that is accepted.
    fn refuse(&self, failure: HttpFailure, request: &Parts) -> Response {
        let mut response = failure.into_response();
        if self.oidc.is_none() {
            return response;
        }
        let path = request.extensions.get::<MatchedPath>().map(MatchedPath::as_str);
        let verb = path.and_then(|path| calls::verb_at(path, &request.method));
        // A path without a verb is MCP, whose tools include those that need `run`.
        let needed = verb.map_or(Role::Run, |verb| verb.needs);
        let role = request.extensions.get::<CallerRole>();
        // With `--read-only` no token would help.
        let lacks_role =
            needed <= self.most && role.is_some_and(|CallerRole(role)| *role < Some(needed));
        if let Some(lack) = Lack::of(&response, bearer(&request.headers), lacks_role) {
            let base = self.base.reached_at(self.names.host(&request.uri, &request.headers));
            add_challenge(&mut response, lack, needed, base.as_ref());
        }
        response
    }

    /// The verb of an MCP tool that is called, if the caller lacks its role. MCP's authorization wants a
    /// response by which a client can get a token with more rights. `None` without issuers: such a caller
    /// is only not offered the tool.
    fn verb_of_forbidden_tool(&self, request: &Parts, body: &[u8]) -> Option<ApiVerb> {
        self.oidc.as_ref()?;
        let CallerRole(role) = *request.extensions.get::<CallerRole>()?;
        verb_of_tool_call(request, body).filter(|verb| role < Some(verb.needs))
    }

    /// The refusal of a request whose caller lacks a role.
    async fn lacks_role(&self, request: &Parts, verb: &ApiVerb) -> HttpFailure {
        let service = request.extensions.get::<Service>().unwrap_or(&self.service);
        let denied = reject::role(service, verb.needs);
        service.library().note_refusal(verb.policy, &denied).await;
        Error::from(sshjobs_core::jobs::Error::from(denied)).into()
    }

    /// Metadata of the server as a resource of OAuth (RFC 9728), at the path of its base URL or of its MCP
    /// endpoint. `None` without issuers, and at another path.
    pub(crate) fn oauth_metadata(&self, request: &Parts) -> Option<Json<Value>> {
        let issuers: Vec<&str> = self.oidc.as_ref()?.issuers().collect();
        let base = self.base.reached_at(self.names.host(&request.uri, &request.headers))?;
        let resource = request.uri.path().strip_prefix(METADATA)?;
        let below_base = [self.base.prefix.as_str(), path_of(&base.0), ""]
            .into_iter()
            .find_map(|path| resource.strip_prefix(path).filter(|rest| ["", MCP].contains(rest)))?;
        Some(metadata(&issuers, &base.0, below_base == MCP, self.most))
    }

    /// Checks Host and Origin. Returns the server's URL for browsers: `None` over the socket, which
    /// they can't reach, unless the options have a public one.
    fn check_names(
        &self,
        uri: &Uri,
        headers: &HeaderMap,
        peer: Peer,
    ) -> Result<Option<ReachedAt>, Error> {
        let host = self.names.host(uri, headers);
        // DNS rebinding needs a network address, so the socket accepts any Host.
        if peer != Peer::Socket && host.is_none() {
            return Err(reject::wrong_host());
        }
        if !self.names.allow_origin(headers, host.as_ref()) {
            return Err(reject::wrong_origin());
        }
        let host = if peer == Peer::Socket { None } else { host };
        Ok(self.base.reached_at(host))
    }

    /// The service for the token of a request that has not passed [`guard`].
    pub(crate) async fn identify(&self, request: &Parts) -> Result<Service, Error> {
        let peer = request.extensions.get::<Peer>().copied().unwrap_or(Peer::Socket);
        self.service_for(request, peer).await
    }

    /// The service for a token in the body of a request.
    pub(crate) async fn service_with(
        &self,
        token: SecretString,
        request: &Parts,
    ) -> Result<Service, Error> {
        let peer = request.extensions.get::<Peer>().copied().unwrap_or(Peer::Socket);
        self.service_of(Some(token), peer).await
    }

    /// The URL at which the browser that sends a request reaches this server.
    pub(crate) fn base_url(&self, request: &Parts) -> Option<String> {
        let host = self.names.host(&request.uri, &request.headers);
        self.base.reached_at(host).map(|ReachedAt(url)| url)
    }

    /// Whether a request comes from a page of this server, or from a program other than a browser.
    pub(crate) fn is_own_or_no_page(&self, request: &Parts) -> bool {
        let site = request.headers.get("sec-fetch-site").map(HeaderValue::as_bytes);
        let is_other_site = site.is_some_and(|site| site != b"same-origin" && site != b"none");
        !is_other_site && self.is_own_origin(request) != Some(false)
    }

    fn is_own_origin(&self, request: &Parts) -> Option<bool> {
        let host = self.names.host(&request.uri, &request.headers);
        self.names.is_own_origin(&request.headers, host.as_ref())
    }

    /// The cookie by which the page that sends a request stays logged in.
    pub(crate) fn login_cookie(&self, request: &Parts) -> LoginCookie {
        let host = self.names.host(&request.uri, &request.headers);
        let path = self.base.public.as_deref().map_or(self.base.prefix.as_str(), path_of);
        let is_secure = match (&self.base.public, request.headers.get(header::ORIGIN)) {
            (Some(public), _) => public.starts_with("https://"),
            // A proxy may add TLS, which only the page's origin shows.
            (None, Some(origin)) => self.base.tls || origin.as_bytes().starts_with(b"https://"),
            (None, None) => self.base.tls,
        };
        LoginCookie::new(host.as_ref(), path, is_secure)
    }

    /// The service for the token of a request: in its header, or of the login in the cookie of its page.
    async fn service_for(&self, request: &Parts, peer: Peer) -> Result<Service, Error> {
        if let Some(token) = bearer(&request.headers) {
            return self.service_of(Some(token.into()), peer).await;
        }
        // A proxy may ask for a password of its own, in the header Authorization.
        let Some(cookie) = self.cookie_of_own_page(request) else {
            return self.service_of(None, peer).await;
        };
        // Reading the logins is work. A client that makes up cookies gets a limited amount of it.
        if !self.logins.knows(&cookie) && !self.failures.note(peer) {
            return Err(reject::too_many_failures());
        }
        let token = self.logins.token_of(&cookie).await.map_err(reject::logins_unusable)?;
        match token {
            Some(token) => self.service_of(Some(token), peer).await,
            // Not a guess: the login has ended.
            None => Err(reject::login_ended()),
        }
    }

    /// The cookie of a login, if this server's own page sends the request. `None` without tokens: then every client is let
    /// in, also with an old cookie.
    fn cookie_of_own_page(&self, request: &Parts) -> Option<SecretString> {
        self.tokens.as_ref()?;
        let is_own_origin = self.is_own_origin(request);
        if is_from_own_page(&request.method, &request.headers, is_own_origin) {
            self.login_cookie(request).value_in(&request.headers)
        } else {
            None
        }
    }

    /// The service with the caller's rights.
    async fn service_of(&self, token: Option<SecretString>, peer: Peer) -> Result<Service, Error> {
        let Some(tokens) = &self.tokens else { return Ok(self.service.clone()) };
        let found = match token {
            // Nothing is guessed, and each client of MCP begins so: it does not count as a failure.
            None => return Err(reject::without_token()),
            Some(token) => match &self.oidc {
                Some(oidc) if Oidc::is_jwt(token.expose_secret()) => oidc
                    .caller_of(token.expose_secret())
                    .await
                    .map_err(|why| reject::refused_jwt(&why)),
                Some(_) | None => caller_of(tokens, token).await,
            },
        };
        let (caller, rights) = found.map_err(|error| {
            // Unreadable tokens are the server's fault and don't count against the client.
            if error.code == Code::Unauthenticated {
                self.refused(error, peer)
            } else {
                error
            }
        })?;
        let rights = Rights {
            role: rights.role.min(self.most),
            ..rights
        };
        let service = self.service.of(caller, rights);
        Ok(match peer.address() {
            Some(address) => service.with_context(|context| context.address = Some(address)),
            None => service,
        })
    }

    /// Counts a failed authentication.
    fn refused(&self, error: Error, peer: Peer) -> Error {
        self.metrics.count_refused_login();
        // Logged only below the limit, so that guesses can't flood the log.
        if self.failures.note(peer) {
            tracing::info!(?peer, "not let in: {}", error.message);
            error
        } else {
            reject::too_many_failures()
        }
    }
}

/// The caller of a token. Unless that is known at once, it is looked up on another thread, because a
/// file on a network disk may take long to answer, and other requests must not wait for it.
async fn caller_of(tokens: &Arc<Tokens>, token: SecretString) -> Result<(Caller, Rights), Error> {
    if let Some(known) = tokens.caller_at_once(token.expose_secret()) {
        return Ok(known);
    }
    let tokens = Arc::clone(tokens);
    let looked_up = tokio::task::spawn_blocking(move || tokens.caller_of(token.expose_secret()));
    // The thread outlives the limit; tokio bounds the number of blocking threads.
    match timeout(TOKENS_TIME, looked_up).await {
        Ok(Ok(found)) => found.map_err(reject::refused),
        Ok(Err(_)) | Err(_) => Err(reject::tokens_unreadable(
            &"the file does not answer, or the lookup failed",
        )),
    }
}

/// The verb of the tool that an MCP request calls. `None` if it calls none.
fn verb_of_tool_call(request: &Parts, body: &[u8]) -> Option<ApiVerb> {
    #[derive(Deserialize)]
    struct Message {
        method: String,
        params: Option<Params>,
    }
    #[derive(Deserialize)]
    struct Params {
        name: Option<String>,
    }
    let path = request.extensions.get::<MatchedPath>()?;
    if !path.as_str().ends_with("/mcp") {
        return None;
    }
    let message: Message = serde_json::from_slice(body).ok()?;
    if message.method != "tools/call" {
        return None;
    }
    // Each tool has a verb of the API.
    let name = message.params?.name?;
    let path = format!("/v1/{}", name.strip_prefix("ssh_")?);
    calls::verb_at(&path, &Method::POST)
}

/// The token of a request (RFC 6750, section 2.1).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    // Two headers are ambiguous.
    if headers.get_all(header::AUTHORIZATION).iter().count() > 1 {
        return None;
    }
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Checks the role that a verb needs, whatever the body contains. Returns the verb.
async fn check_verb(
    service: &Service,
    parts: &Parts,
    path: Option<&str>,
) -> Result<Option<ApiVerb>, HttpFailure> {
    let Some(verb) = path.and_then(|path| calls::verb_at(path, &parts.method)) else {
        return Ok(None);
    };
    if service.library().rights().role < verb.needs {
        let denied = reject::role(service, verb.needs);
        service.library().note_refusal(verb.policy, &denied).await;
        return Err(Error::from(sshjobs_core::jobs::Error::from(denied)).into());
    }
    if verb.body == BodyKind::Json && !calls::is_json(&parts.headers) {
        return Err(reject::not_json());
    }
    Ok(Some(verb))
}
