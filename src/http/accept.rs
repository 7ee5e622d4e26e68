use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::time::{sleep, timeout};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::listen::Listener;
use super::peer::Peer;
use super::room::{Permit, Room};

/// Time limit for a TLS handshake, for the head of a request, and for an idle connection to send one.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Time limit for a client to take some of what is sent to it.
const WRITE_TIME: Duration = Duration::from_secs(60);
/// Bytes of the head of a request, and fields in it.
const HEAD_BYTES: usize = 32 << 10;
const HEAD_FIELDS: usize = 100;
/// Requests side by side on an HTTP/2 connection.
const STREAMS: u32 = 256;
/// Pause after a connection could not be accepted, as when there are no more file descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// Takes connections in, and serves them until it is told to stop.
pub(super) struct Acceptor {
    pub(super) app: Router,
    pub(super) tls: Option<TlsAcceptor>,
    pub(super) stopping: CancellationToken,
    pub(super) connections: TaskTracker,
    pub(super) room: Room,
}

impl Acceptor {
    /// Accepts until it is told to stop. Connections go on to the end of their responses.
    pub(super) async fn run(self: Arc<Self>, listener: Listener) {
        let accepting = async {
            loop {
                let of_all = self.room.wait().await;
                if let Err(error) = self.accept(&listener, of_all).await {
                    tracing::warn!(%error, "a connection could not be accepted");
                    sleep(PAUSE).await;
                }
            }
        };
        self.stopping.run_until_cancelled(accepting).await;
    }

    async fn accept(self: &Arc<Self>, listener: &Listener, of_all: Permit) -> io::Result<()> {
        match listener {
            Listener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let peer = Peer::Network(address.ip());
                let Some(place) = self.room.take(of_all, peer) else { return Ok(()) };
                let acceptor = Arc::clone(self);
                self.connections.spawn(async move {
                    match acceptor.tls.clone() {
                        None => acceptor.serve(stream, peer).await,
                        Some(tls) => match timeout(HEAD_TIME, tls.accept(stream)).await {
                            Ok(Ok(stream)) => acceptor.serve(stream, peer).await,
                            _ => tracing::debug!(?peer, "there was no TLS handshake"),
                        },
                    }
                    drop(place);
                });
            }
            Listener::Unix { listener, .. } => {
                let (stream, _) = listener.accept().await?;
                let Some(place) = self.room.take(of_all, Peer::Socket) else { return Ok(()) };
                let acceptor = Arc::clone(self);
                self.connections.spawn(async move {
                    acceptor.serve(stream, Peer::Socket).await;
                    drop(place);
                });
            }
        }
        Ok(())
    }

    async fn serve(&self, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, peer: Peer) {
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE_TIME));
        let mut stream = BufReader::new(Box::pin(stream));
        // hyper waits for a first byte without end.
        if !matches!(timeout(HEAD_TIME, stream.fill_buf()).await, Ok(Ok(_))) {
            return;
        }
        let app = self.app.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            app.clone().oneshot(request)
        });
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_BYTES)
            .max_headers(HEAD_FIELDS);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEAD_BYTES.try_into().unwrap_or(u32::MAX))
            .keep_alive_interval(HEAD_TIME);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = self.stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(?peer, error, "a connection ended badly");
        }
    }
}
