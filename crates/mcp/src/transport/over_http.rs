//! MCP over Streamable HTTP, with sessions for each caller.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Display;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use http::{Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::combinators::BoxBody;
use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use tokio_util::sync::CancellationToken;

use crate::ask::Elicitors;
use crate::server::{McpOptions, McpServer};
use sshjobs_base::lock::lock;
use sshjobs_core::jobs::{Caller, HostPatterns, Role};
use sshjobs_wire::Service;

/// MCP's Streamable HTTP transport, of every revision, for a server that has authenticated its
/// callers.
///
/// Each caller has its own sessions: no other caller can use them, even with the session's id.
#[derive(Clone)]
pub struct OverHttp {
    transports: Arc<Mutex<HashMap<Caller, CallerTransport>>>,
    closing: CancellationToken,
    elicitors: Elicitors,
    options: McpOptions,
}

/// Handler of one caller's requests, as long as its role and hosts don't change. Claims may change with
/// each token: each request brings its own.
struct CallerTransport {
    role: Role,
    hosts: HostPatterns,
    transport: StreamableHttpService<McpServer, LocalSessionManager>,
    /// Ends its sessions.
    closing: CancellationToken,
}

type Bytes = bytes::Bytes;

/// Time after which an unused session ends.
const IDLE_SESSION: Duration = Duration::from_secs(1800);
/// Interval of comments that keep proxies from closing a stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

impl OverHttp {
    /// A transport whose sessions end with `closing`. `elicitors` must be those of the service.
    pub fn new(closing: CancellationToken, elicitors: Elicitors, options: McpOptions) -> Self {
        Self {
            transports: Arc::default(),
            closing,
            elicitors,
            options,
        }
    }

    /// Handles a request, whose extensions contain its caller's [`Service`].
    ///
    /// Dropping the response ends its wait, and nothing else.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<BoxBody<Bytes, Infallible>>
    where
        B: Body + Send + 'static,
        B::Error: Display,
    {
        let service = request
            .extensions()
            .get::<Service>()
            .expect("requests reach this with their caller's service");
        let transport = self.transport(service);
        let ends_session = request.method() == Method::DELETE;
        let mut response = transport.handle(request).await;
        // The Python SDK treats 202 as a failure here.
        if ends_session && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        response
    }

    fn transport(
        &self,
        service: &Service,
    ) -> StreamableHttpService<McpServer, LocalSessionManager> {
        let caller = service.library().caller();
        let rights = service.library().rights();
        // Locked up to the insertion: two first requests of a caller must share one transport.
        let mut transports = lock(&self.transports);
        if let Some(known) = transports.get(caller)
            && known.role == rights.role
            && known.hosts == rights.hosts
        {
            return known.transport.clone();
        }
        let closing = self.closing.child_token();
        // One server for all sessions of a caller, which share its tasks and parked calls.
        let server = McpServer::new(
            Arc::new(service.clone()),
            self.elicitors.of(caller),
            self.options,
        );
        let transport = StreamableHttpService::new(
            move || Ok(server.for_new_session()),
            Arc::new(sessions()),
            config(closing.clone()),
        );
        let of_caller = CallerTransport {
            role: rights.role,
            hosts: rights.hosts.clone(),
            transport: transport.clone(),
            closing,
        };
        // A caller whose rights changed gets new sessions.
        if let Some(before) = transports.insert(caller.clone(), of_caller) {
            before.closing.cancel();
        }
        transport
    }
}

fn sessions() -> LocalSessionManager {
    let mut sessions = LocalSessionManager::default();
    sessions.session_config.keep_alive = Some(IDLE_SESSION);
    sessions
}

/// Host, Origin and body size were checked before. A request of 2026-07-28 that is answered without a notification before
/// gets JSON; the machinery of an event stream for one answer costs more than most calls.
fn config(closing: CancellationToken) -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_json_response(true)
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_cancellation_token(closing)
}
