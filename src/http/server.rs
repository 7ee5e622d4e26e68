use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::accept::Acceptor;
use super::failures::Failures;
use super::guard::{Base, Guard};
use super::in_flight::InFlight;
use super::listen::Listener;
use super::metrics::Metrics;
use super::names::Names;
use super::room::Room;
use super::router::{Ends, router};
use super::tls::{Certificate, TlsError};
use super::{Addresses, Mount, Options, metrics};
use crate::wire::Service;

/// A server that listens, and does not answer yet.
pub struct Server {
    addresses: Addresses,
    listeners: Vec<Listener>,
    metrics: Option<Listener>,
    certificate: Option<Arc<Certificate>>,
    options: Options,
}

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// It can't listen.
    #[error("can't listen on {place}: {source}")]
    Listen {
        /// Where.
        place: String,
        /// Why.
        source: io::Error,
    },
    /// It has no certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// At the end: time limit for calls to be answered, and then for sessions and streams to be closed.
const LAST_ANSWERS: Duration = Duration::from_secs(10);
const LAST_WORDS: Duration = Duration::from_secs(5);

impl Server {
    /// Begins to listen.
    ///
    /// # Errors
    /// [`ServerError`]; then nothing listens.
    pub async fn bind(options: Options) -> Result<Self, ServerError> {
        let failed = |place: String| move |source| ServerError::Listen { place, source };
        let certificate = options.tls.clone().map(Certificate::load).transpose()?;
        let (mut listeners, mut url) = (Vec::new(), None);
        if let Some(address) = options.address {
            let listener = Listener::tcp(address).await.map_err(failed(address.to_string()))?;
            let scheme = if certificate.is_some() { "https" } else { "http" };
            let address = listener.address().unwrap_or(address);
            url = Some(format!("{scheme}://{address}{}", options.prefix));
            listeners.push(listener);
        }
        if let Some(path) = &options.socket {
            listeners.push(Listener::unix(path).map_err(failed(path.display().to_string()))?);
        }
        let metrics = match options.metrics {
            Some(address) => Some(Listener::tcp(address).await.map_err(failed(address.to_string()))?),
            None => None,
        };
        let addresses = Addresses {
            url,
            socket: options.socket.clone(),
            metrics: metrics.as_ref().and_then(Listener::address),
        };
        Ok(Self { addresses, listeners, metrics, certificate, options })
    }

    /// Where it can be reached.
    pub fn addresses(&self) -> &Addresses {
        &self.addresses
    }

    /// Serves until `stop` comes. Then no more is taken in, waits answer with what there is, calls in flight are answered, jobs that do
    /// not outlive the server are ended, and everything is closed. `closing` is cancelled when the calls have been answered.
    ///
    /// # Errors
    /// [`ServerError::Tls`].
    pub async fn serve(
        self,
        service: Service,
        (mounts, closing): (Vec<Mount>, CancellationToken),
        stop: impl Future<Output = ()>,
    ) -> Result<(), ServerError> {
        let Self { listeners, metrics, certificate, options, .. } = self;
        let prefix = options.prefix.clone();
        let guard = Arc::new(guard(service.clone(), options, certificate.is_some()));
        let (stopping, sessions, connections, room) =
            (CancellationToken::new(), TaskTracker::new(), TaskTracker::new(), Room::new());
        let ends = Ends { closing: guard.closing.clone(), sessions: sessions.clone() };
        let acceptor = |app, tls| {
            let (stopping, connections, room) = (stopping.clone(), connections.clone(), room.clone());
            Arc::new(Acceptor { app, tls, stopping, connections, room })
        };
        let tls = certificate.as_ref().map(Certificate::config).transpose()?;
        let app = router(Arc::clone(&guard), mounts, ends, &prefix);
        let serving = acceptor(app, tls.map(TlsAcceptor::from));
        let mut tasks = JoinSet::new();
        for listener in listeners {
            tasks.spawn(Arc::clone(&serving).run(listener));
        }
        if let Some(listener) = metrics {
            let of = (room.clone(), Arc::clone(&guard.in_flight));
            let shown = metrics::routes(Arc::clone(&guard.metrics), service.clone(), of);
            tasks.spawn(acceptor(shown, None).run(listener));
        }
        if let Some(certificate) = certificate {
            tasks.spawn(async move { certificate.follow().await });
        }
        stop.await;
        guard.closing.cancel();
        service.close();
        drop(timeout(LAST_ANSWERS, answered(&guard.in_flight)).await);
        stopping.cancel();
        service.shutdown().await;
        closing.cancel();
        sessions.close();
        connections.close();
        drop(timeout(LAST_WORDS, async { tokio::join!(sessions.wait(), connections.wait()) }).await);
        Ok(())
    }
}

fn guard(service: Service, options: Options, tls: bool) -> Guard {
    let own = options.address.map(|address| address.ip().to_string());
    Guard {
        service,
        names: Names::new(own, &options.names, &options.origins),
        base: Base { tls, prefix: options.prefix, public: options.public_url },
        tokens: options.tokens,
        most: options.most,
        failures: Failures::new(),
        in_flight: Arc::new(InFlight::new()),
        metrics: Arc::new(Metrics::new()),
        closing: CancellationToken::new(),
    }
}

/// Comes when every call has been answered.
async fn answered(in_flight: &InFlight) {
    while in_flight.count() > 0 {
        sleep(Duration::from_millis(20)).await;
    }
}
