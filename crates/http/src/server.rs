//! Listens, serves, and shuts down in order: refuses new calls, answers those in progress, ends
//! jobs, closes connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::addresses::Addresses;
use super::mount::Mount;
use super::options::ServerOptions;
use super::router::{ConnectionEnds, InCluster, peer_routes, router};
use super::tls::{Certificate, TlsError};
use crate::connections::{Acceptor, ConnectionRoom, Places, ServerListener};
use crate::guard::{
    AllowedNames, BaseUrl, Bodies, InFlight, LoginFailures, Metrics, PageLogins, RequestGuard,
    metrics,
};
use crate::peers::{ClusterPrompters, HttpPassOn, answer_peers};
use sshjobs_wire::Service;

/// A server that listens and does not answer yet.
pub struct HttpServer {
    addresses: Addresses,
    listeners: Vec<ServerListener>,
    metrics: Option<ServerListener>,
    certificate: Option<Arc<Certificate>>,
    options: ServerOptions,
}

/// Why a server can't run.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It can't listen.
    #[error("can't listen on {place}: {source}")]
    Listen {
        /// The address or path.
        place: String,
        /// The cause.
        source: io::Error,
    },
    /// It has no usable certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The NATS of the cluster was started again without its data.
    #[error("NATS has lost the jobs, tokens and settings of this cluster")]
    ClusterLost,
}

/// At shutdown: time limit for calls to be answered, and then for sessions and streams to close.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
const LAST_WORDS: Duration = Duration::from_secs(5);

fn listen_failed(place: String, source: io::Error) -> ServerError {
    ServerError::Listen { place, source }
}

impl HttpServer {
    /// Starts to listen.
    ///
    /// # Errors
    /// [`ServerError`]. Nothing listens then.
    pub async fn bind(options: ServerOptions) -> Result<Self, ServerError> {
        let certificate = match options.tls.clone() {
            Some(files) => Some(Certificate::load(files).await?),
            None => None,
        };
        let mut listeners = Vec::new();
        let mut url = None;
        if let Some(address) = options.address {
            let listener = ServerListener::tcp(address)
                .await
                .map_err(|source| listen_failed(address.to_string(), source))?;
            let scheme = if certificate.is_some() {
                "https"
            } else {
                "http"
            };
            // The option's port may be 0; this is the one that the system chose.
            let address = listener.address().unwrap_or(address);
            url = Some(format!("{scheme}://{address}{}", options.prefix));
            listeners.push(listener);
        }
        if let Some(path) = &options.socket {
            listeners.push(
                ServerListener::unix(path)
                    .map_err(|source| listen_failed(path.display().to_string(), source))?,
            );
        }
        let metrics = match options.metrics {
            Some(address) => Some(
                ServerListener::tcp(address)
                    .await
                    .map_err(|source| listen_failed(address.to_string(), source))?,
            ),
            None => None,
        };
        let addresses = Addresses {
            url,
            socket: options.socket.clone(),
            metrics: metrics.as_ref().and_then(ServerListener::address),
        };
        Ok(Self {
            addresses,
            listeners,
            metrics,
            certificate,
            options,
        })
    }

    /// Addresses at which it can be reached.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Its certificate, to read it again. Tokens are read again with each call.
    pub fn certificate(&self) -> Option<Arc<Certificate>> {
        self.certificate.clone()
    }

    /// Serves until `stop` resolves. Then it accepts no more requests, waits return early, calls in
    /// progress are answered, jobs that do not outlive the server are ended, and all connections
    /// are closed. `closing` is cancelled when the calls have been answered.
    ///
    /// # Errors
    /// [`ServerError::Tls`]; [`ServerError::ClusterLost`] after the same steps as at the end.
    pub async fn serve(
        self,
        service: Service,
        mounts: Vec<Mount>,
        closing: CancellationToken,
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServerError> {
        let Self {
            listeners,
            metrics,
            certificate,
            options,
            ..
        } = self;
        let mut tasks = JoinSet::new();
        let sessions = TaskTracker::new();
        let asking = options.prompters.clone();
        let service = in_cluster(service, asking, &sessions, &mounts, &mut tasks);
        let (prefix, drain) = (options.prefix.clone(), options.drain);
        let guard = Arc::new(guard(service.clone(), options, certificate.is_some()));
        let stopping = CancellationToken::new();
        let connections = TaskTracker::new();
        let mut rooms = Vec::new();
        let ends = ConnectionEnds {
            closing: guard.closing.clone(),
            sessions: sessions.clone(),
        };
        let acceptor = |app, tls, room| {
            Arc::new(Acceptor {
                app,
                tls,
                stopping: stopping.clone(),
                connections: connections.clone(),
                room,
            })
        };
        let tls = certificate.as_ref().map(Certificate::config).transpose()?;
        let tls = tls.map(TlsAcceptor::from);
        let app = router(Arc::clone(&guard), mounts, ends, &prefix);
        for listener in listeners {
            let room = ConnectionRoom::new(listener.places());
            rooms.push(room.clone());
            tasks.spawn(acceptor(app.clone(), tls.clone(), room).run(listener));
        }
        if let Some(listener) = metrics {
            // A room of its own, so that clients that fill the others can't stop monitoring.
            let room = ConnectionRoom::new(Places::metrics());
            rooms.push(room.clone());
            let shown = metrics::ShownMetrics {
                metrics: Arc::clone(&guard.metrics),
                service: service.clone(),
                in_flight: Arc::clone(&guard.in_flight),
                rooms,
                names: guard.names.clone(),
                certificate: certificate.clone(),
            };
            tasks.spawn(acceptor(metrics::routes(shown), None, room).run(listener));
        }
        if let Some(certificate) = certificate {
            tasks.spawn(async move { certificate.follow().await });
        }
        let is_lost = tokio::select! {
            () = stop => false,
            () = cluster_lost(&service) => true,
        };
        guard.closing.cancel();
        // After the guard closes: a stream that ends here reconnects, and must be refused then.
        service.close();
        // Connections are still accepted, so that new requests get an error with a hint.
        let answering = timeout(LAST_ANSWERS, guard.in_flight.all_answered());
        if is_lost {
            answering.await.ok();
        } else {
            // At the same time: the readers of durable jobs wait for the replica that takes over.
            drop(tokio::join!(answering, service.hand_over(drain)));
        }
        stopping.cancel();
        // Before the wait for sessions: a session ends when its job has ended.
        service.shutdown().await;
        // Ends MCP's streams, which would keep their connections open until LAST_WORDS.
        closing.cancel();
        wait_for_last_words(&sessions, &connections).await;
        if is_lost {
            return Err(ServerError::ClusterLost);
        }
        Ok(())
    }
}

/// Waits for the end of all sessions and connections, at most for [`LAST_WORDS`].
async fn wait_for_last_words(sessions: &TaskTracker, connections: &TaskTracker) {
    // `wait` resolves only for a closed tracker.
    sessions.close();
    connections.close();
    let ended = async { tokio::join!(sessions.wait(), connections.wait()) };
    // Tasks that exceed the limit are not aborted here: they end with the runtime.
    timeout(LAST_WORDS, ended).await.ok();
}

/// Resolves when the data of the service's cluster is lost. Never if there is no cluster.
async fn cluster_lost(service: &Service) {
    match service.library().peers() {
        Some(peers) => peers.lost().await,
        None => std::future::pending().await,
    }
}

/// The service as a replica of its cluster, if there is one. Adds a task that answers the others.
fn in_cluster(
    service: Service,
    prompters: Option<ClusterPrompters>,
    sessions: &TaskTracker,
    mounts: &[Mount],
    tasks: &mut JoinSet<()>,
) -> Service {
    let Some(peers) = service.library().peers() else { return service };
    let passing_on = service.clone().passing_on(Arc::new(HttpPassOn::new(Arc::clone(&peers))));
    let cluster = InCluster {
        peers: Arc::clone(&peers),
        here: service,
        passing_on: passing_on.clone(),
        prompters,
    };
    tasks.spawn(answer_peers(
        peers,
        peer_routes(&cluster, sessions.clone(), mounts),
    ));
    passing_on
}

fn guard(service: Service, options: ServerOptions, tls: bool) -> RequestGuard {
    let own = options.address.map(|address| address.ip().to_string());
    RequestGuard {
        names: AllowedNames::new(own, &options.names, &options.origins)
            .reached_at(options.public_url.as_deref()),
        base: BaseUrl {
            tls,
            prefix: options.prefix,
            public: options.public_url,
        },
        tokens: options.tokens.map(Arc::new),
        logins: PageLogins::new(service.library().shared_value("logins")),
        oidc: options.oidc,
        most: options.most,
        failures: LoginFailures::new(),
        in_flight: Arc::new(InFlight::new()),
        bodies: Bodies::new(),
        drains: TaskTracker::new(),
        metrics: Arc::new(Metrics::new()),
        closing: CancellationToken::new(),
        service,
    }
}
