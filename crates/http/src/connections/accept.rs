//! Accepts connections and bounds each of them: handshake, heads, idle time and slow clients.

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
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_io_timeout::TimeoutStream;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::ServiceExt;

use super::held_until_sent::hold_until_sent;
use super::listen::ServerListener;
use super::peer::Peer;
use super::room::{ConnectionRoom, ConnectionSlot, Permit};

/// Time limit from the first byte to the end of the head of a request. For the first request it
/// includes the TLS handshake.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// Time limit for a client to accept some of the response.
const WRITE_TIME: Duration = Duration::from_secs(60);
/// Maximum bytes and fields in the head of a request.
const HEAD_BYTES: usize = 32 << 10;
const HEAD_FIELDS: usize = 100;
/// Maximum parallel requests on an HTTP/2 connection.
const STREAMS: u32 = 256;
/// Maximum bytes of bodies buffered before they are read: of one HTTP/2 request, and of all on one
/// connection.
const STREAM_WINDOW: u32 = 64 << 10;
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Time for a connection to close before it is cut.
const GOODBYE: Duration = Duration::from_secs(5);
/// Pause after a failed accept, for example because file descriptors have run out.
const PAUSE: Duration = Duration::from_millis(100);

/// A connection that was just accepted.
struct Accepted {
    peer: Peer,
    place: Arc<ConnectionSlot>,
    /// Deadline for the head of its first request.
    first_head: Instant,
}

impl Accepted {
    fn now(peer: Peer, place: ConnectionSlot) -> Self {
        Self {
            peer,
            place: Arc::new(place),
            first_head: Instant::now() + HEAD_TIME,
        }
    }
}

/// Accepts connections and serves them until it is stopped.
pub(crate) struct Acceptor {
    pub(crate) app: Router,
    pub(crate) tls: Option<TlsAcceptor>,
    pub(crate) stopping: CancellationToken,
    pub(crate) connections: TaskTracker,
    pub(crate) room: ConnectionRoom,
}

impl Acceptor {
    /// Accepts until it is stopped. Open connections continue to the end of their responses.
    pub(crate) async fn run(self: Arc<Self>, listener: ServerListener) {
        let accepting = async {
            loop {
                // First a slot, then a connection: at the limit, clients wait in the backlog.
                let of_all = self.room.wait().await;
                if let Err(error) = self.accept(&listener, of_all).await {
                    tracing::warn!(%error, "a connection could not be accepted");
                    // Without file descriptors every accept fails at once, and this would spin.
                    sleep(PAUSE).await;
                }
            }
        };
        self.stopping.run_until_cancelled(accepting).await;
    }

    async fn accept(self: &Arc<Self>, listener: &ServerListener, of_all: Permit) -> io::Result<()> {
        match listener {
            ServerListener::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let peer = Peer::Network(address.ip());
                // Disconnects a network over its limit: a wait here would stop all clients.
                let Some(place) = self.room.take(of_all, peer) else { return Ok(()) };
                let accepted = Accepted::now(peer, place);
                let acceptor = Arc::clone(self);
                self.connections.spawn(async move {
                    // In the connection's task: a slow handshake must not delay the next accept.
                    match acceptor.tls.clone() {
                        None => acceptor.serve(stream, accepted).await,
                        Some(tls) => {
                            let handshake = timeout_at(accepted.first_head, tls.accept(stream));
                            let leaves = accepted.place.has_to_leave.clone();
                            match leaves.run_until_cancelled(handshake).await {
                                Some(Ok(Ok(stream))) => acceptor.serve(stream, accepted).await,
                                _ => tracing::debug!(?peer, "the TLS handshake failed"),
                            }
                        }
                    }
                });
            }
            ServerListener::Unix(socket) => {
                let stream = socket.accept().await?;
                let Some(place) = self.room.take(of_all, Peer::Socket) else { return Ok(()) };
                let accepted = Accepted::now(Peer::Socket, place);
                let acceptor = Arc::clone(self);
                self.connections.spawn(async move { acceptor.serve(stream, accepted).await });
            }
        }
        Ok(())
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        accepted: Accepted,
    ) {
        let Accepted {
            peer,
            place,
            first_head,
        } = accepted;
        let mut stream = TimeoutStream::new(stream);
        stream.set_write_timeout(Some(WRITE_TIME));
        let stream = Box::pin(stream);

        let activity = place.activity.clone();
        let has_to_leave = place.has_to_leave.clone();
        let counted = activity.clone();
        let app = self.app.clone();
        let service = service_fn(move |request: Request<Incoming>| {
            // Not in the future below: the connection is busy from the end of the head.
            let busy = counted.begin();
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            // A WebSocket outlives its HTTP connection and needs its slot.
            request.extensions_mut().insert(Arc::clone(&place));
            let answered = app.clone().oneshot(request);
            async move { answered.await.map(|response| hold_until_sent(busy, response)) }
        });
        let mut builder = Builder::new(TokioExecutor::new());
        builder
            .http1()
            // hyper panics if it has a time limit and no timer.
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_BYTES)
            .max_headers(HEAD_FIELDS);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEAD_BYTES.try_into().unwrap_or(u32::MAX))
            .keep_alive_interval(HEAD_TIME);
        let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            // Needs no limit: `Server::serve` waits LAST_WORDS at most.
            () = self.stopping.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
            // hyper has no limit for the time before the first complete head, nor for idle HTTP/2
            // connections.
            () = activity.idle(first_head) => {
                connection.as_mut().graceful_shutdown();
                timeout(GOODBYE, connection).await.unwrap_or(Ok(()))
            }
            () = has_to_leave.cancelled() => {
                // Another connection needs its slot now. A request may have arrived meanwhile.
                if !activity.is_busy() {
                    return;
                }
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!(?peer, error, "a connection ended badly");
        }
    }
}
