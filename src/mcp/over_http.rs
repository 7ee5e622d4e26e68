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

use super::elicitor::Elicitors;
use super::server::Server;
use crate::jobs::{Caller, Rights};
use crate::lock::lock;
use crate::wire::Service;

/// MCP's Streamable HTTP transport, of every revision: for a server that has found out who calls.
///
/// Each caller has sessions of its own: what one has begun, another can't go on with, even if it knows the session's id.
#[derive(Clone)]
pub struct OverHttp {
    ends: Arc<Mutex<HashMap<Caller, End>>>,
    closing: CancellationToken,
    elicitors: Elicitors,
}

/// Where one caller's requests go, while it has these rights.
struct End {
    rights: Rights,
    transport: StreamableHttpService<Server, LocalSessionManager>,
    /// Ends its sessions.
    closing: CancellationToken,
}

type Bytes = bytes::Bytes;

/// Time after which a session that nobody uses ends.
const IDLE_SESSION: Duration = Duration::from_secs(1800);
/// Interval of comments that keep proxies from closing a stream.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

impl OverHttp {
    /// A transport whose sessions end with `closing`. The `elicitors` are those that the service asks.
    pub fn new(closing: CancellationToken, elicitors: Elicitors) -> Self {
        Self { ends: Arc::default(), closing, elicitors }
    }

    /// Answers a request, among whose extensions is its caller's [`Service`].
    ///
    /// Dropping the response ends what is waited for, and nothing else.
    pub async fn answer<B>(&self, request: Request<B>) -> Response<BoxBody<Bytes, Infallible>>
    where
        B: Body + Send + 'static,
        B::Error: Display,
    {
        let service =
            request.extensions().get::<Service>().expect("whoever calls this has found out who calls");
        let (transport, ends_session) = (self.transport(service), request.method() == Method::DELETE);
        let mut response = transport.handle(request).await;
        // The Python SDK takes 202 for a failure here.
        if ends_session && response.status() == StatusCode::ACCEPTED {
            *response.status_mut() = StatusCode::NO_CONTENT;
        }
        response
    }

    fn transport(&self, service: &Service) -> StreamableHttpService<Server, LocalSessionManager> {
        let (caller, rights) = (service.library().caller(), service.library().rights());
        let mut ends = lock(&self.ends);
        if let Some(end) = ends.get(caller).filter(|end| end.rights == *rights) {
            return end.transport.clone();
        }
        let closing = self.closing.child_token();
        let (server, rights) =
            (Server::new(Arc::new(service.clone()), self.elicitors.of(caller)), rights.clone());
        let transport = StreamableHttpService::new(
            move || Ok(server.again()),
            Arc::new(sessions()),
            config(closing.clone()),
        );
        let end = End { rights, transport: transport.clone(), closing };
        // With other rights a caller begins anew.
        if let Some(before) = ends.insert(caller.clone(), end) {
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

/// Host, Origin and the size of bodies were checked by whoever hands requests over.
fn config(closing: CancellationToken) -> StreamableHttpServerConfig {
    StreamableHttpServerConfig::default()
        .disable_allowed_hosts()
        .disable_allowed_origins()
        .with_sse_keep_alive(Some(KEEP_ALIVE))
        .with_cancellation_token(closing)
}
