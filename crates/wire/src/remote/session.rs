//! The WebSocket session of a command on a server.

use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use hyper::header::{AUTHORIZATION, HeaderValue};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{self, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use super::client::ServerClient;
use super::dial::{Io, dial};
use super::shown::NextBytes;
use crate::{
    Code, Error, JobEntry, Repeat, SessionChannel, SessionEvent, SessionRequest, SignalReply,
    SignalRequest, WriteReply, WriteRequest,
};
use sshjobs_core::jobs::TerminalSize;

type Socket = WebSocketStream<Box<dyn Io>>;

/// A command on a server, followed byte by byte.
pub struct JobSession {
    incoming: SplitStream<Socket>,
    pub(super) handle: Arc<Handle>,
}

/// Controls a session's command.
pub struct Handle {
    client: Arc<ServerClient>,
    outgoing: Mutex<SplitSink<Socket, Message>>,
    /// Number of further messages of stdin that the server accepts.
    room: Semaphore,
    pub(super) job: JobEntry,
    /// The verb that follows the job again, if it continues without this session.
    verb_to_return: Option<&'static str>,
    /// Whether the server has confirmed that the command continues without this session.
    is_left: watch::Sender<bool>,
}

/// Maximum bytes of stdin in one message.
const PIECE: usize = 32 << 10;
/// Time limit for the server's answer to the WebSocket handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);
/// Silence after which the server counts as lost. It sends a ping each 15 seconds.
const SILENCE: Duration = Duration::from_secs(60);
/// Time limit for the server's answer that a command continues without its session.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(5);
const SILENT: &str = "the server is silent";

impl JobSession {
    /// Starts a command on the server, or joins a job's terminal. Resolves once it runs.
    pub(super) async fn start(
        client: &Arc<ServerClient>,
        request: &SessionRequest,
    ) -> Result<Self, Error> {
        let stream = dial(&client.address)
            .await
            .map_err(|error| client.unreachable(&error.to_string()))?;
        let authority = client.address.authority();
        let path = client.address.path("/v1/session");
        // Also over TLS: `dial` has set that up, and tungstenite connects to nothing here.
        let mut hello = format!("ws://{authority}{path}")
            .into_client_request()
            .map_err(|error| client.unreachable(&error.to_string()))?;
        hello.headers_mut().insert("prefer", HeaderValue::from_static("wait=1"));
        if let Some(token) = client.authorization() {
            hello.headers_mut().insert(AUTHORIZATION, token);
        }
        let (mut socket, _) = timeout(HANDSHAKE_TIMEOUT, client_async(hello, stream))
            .await
            .map_err(|_| client.broken(SILENT))?
            .map_err(|error| refused(client, error))?;
        client.note_reached();
        let text = request.to_json().to_string();
        socket
            .send(Message::text(text))
            .await
            .map_err(|error| client.broken(&error.to_string()))?;
        let (outgoing, mut incoming) = socket.split();
        let job = loop {
            match incoming.next().await {
                Some(Ok(Message::Text(text))) => match serde_json::from_str(text.as_str()) {
                    Ok(SessionEvent::Started(job)) => break *job,
                    Ok(SessionEvent::Failed(error)) => return Err(error),
                    Ok(SessionEvent::Taken | SessionEvent::Left | SessionEvent::Ended { .. })
                    | Err(_) => {
                        return Err(client.foreign());
                    }
                },
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Binary(_) | Message::Frame(_))) => return Err(client.foreign()),
                Some(Ok(Message::Close(_))) | None => return Err(client.broken("it was closed")),
                Some(Err(error)) => return Err(client.broken(&error.to_string())),
            }
        };
        let verb_to_return = match request {
            SessionRequest::Attach(_) => Some("attach"),
            SessionRequest::Start(command) if command.durable == Some(true) => {
                Some(if command.pty { "attach" } else { "tail -f" })
            }
            SessionRequest::Start(_) => None,
        };
        let handle = Handle {
            client: Arc::clone(client),
            outgoing: Mutex::new(outgoing),
            // The server ends the session of a client that sends more messages than that ahead.
            room: Semaphore::new(SessionChannel::STDIN_AHEAD),
            job,
            verb_to_return,
            is_left: watch::Sender::new(false),
        };
        Ok(Self {
            incoming,
            handle: Arc::new(handle),
        })
    }

    /// The next bytes, or the end. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<NextBytes, Error> {
        loop {
            // Cancel safe: `next` of the stream is.
            let Ok(message) = timeout(SILENCE, self.incoming.next()).await else {
                return Err(self.broken(SILENT));
            };
            match message {
                Some(Ok(Message::Binary(frame))) => match SessionChannel::of(&frame) {
                    Some((SessionChannel::Stdout, bytes)) => {
                        return Ok(NextBytes {
                            stdout: bytes.to_vec(),
                            ..NextBytes::default()
                        });
                    }
                    Some((SessionChannel::Stderr, bytes)) => {
                        return Ok(NextBytes {
                            stderr: bytes.to_vec(),
                            ..NextBytes::default()
                        });
                    }
                    Some((SessionChannel::Stdin | SessionChannel::Leave, _)) | None => {}
                },
                Some(Ok(Message::Text(text))) => match serde_json::from_str(text.as_str()) {
                    Ok(SessionEvent::Taken) => self.handle.room.add_permits(1),
                    Ok(SessionEvent::Left) => {
                        self.handle.is_left.send_replace(true);
                    }
                    Ok(SessionEvent::Ended { job, dropped_bytes }) => {
                        return Ok(NextBytes {
                            dropped_bytes,
                            ended: Some(job),
                            ..NextBytes::default()
                        });
                    }
                    Ok(SessionEvent::Failed(error)) => return Err(error),
                    Ok(SessionEvent::Started(_)) | Err(_) => {
                        return Err(self.handle.client.foreign());
                    }
                },
                // tungstenite answers pings itself.
                Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => {}
                Some(Ok(Message::Close(_))) | None => return Err(self.broken("it was closed")),
                Some(Err(error)) => return Err(self.broken(&error.to_string())),
            }
        }
    }

    fn broken(&self, why: &str) -> Error {
        let mut error = self.handle.client.broken(why);
        if let Some(verb) = self.handle.verb_to_return {
            let id = &self.handle.job.job_id;
            error.hint = format!("the job continues: `sshjobs {verb} {id}`").into();
        }
        error
    }
}

impl Handle {
    /// Sends data to stdin, as fast as the command reads it. Cancelling may leave a part sent.
    pub(super) async fn write(&self, data: &[u8]) -> Result<(), Error> {
        for piece in data.chunks(PIECE) {
            self.send(piece).await?;
        }
        Ok(())
    }

    pub(super) async fn close_stdin(&self) -> Result<(), Error> {
        self.send(&[]).await
    }

    async fn send(&self, bytes: &[u8]) -> Result<(), Error> {
        // Forgotten, because `next` adds the permit again when the server reports `Taken`.
        self.room.acquire().await.expect("it is never closed").forget();
        self.send_frame(SessionChannel::Stdin.frame(bytes)).await
    }

    async fn send_frame(&self, frame: Vec<u8>) -> Result<(), Error> {
        let sent = self.outgoing.lock().await.send(Message::binary(frame)).await;
        sent.map_err(|error| self.client.broken(&error.to_string()))
    }

    /// Lets the command continue without this session. Needs a concurrent [`JobSession::next`], which
    /// reads the server's answer.
    pub(super) async fn leave(&self) -> Result<(), Error> {
        self.send_frame(SessionChannel::Leave.frame(&[])).await?;
        let mut is_left = self.is_left.subscribe();
        let answered = timeout(LEAVE_TIMEOUT, is_left.wait_for(|is_left| *is_left)).await;
        // The sender is in this handle, so only the time limit can end the wait.
        answered.map(drop).map_err(|_| {
            Error::new(
                Code::Unsupported,
                "the server does not confirm that the command continues without this program",
                "it may be older than this program; `sshjobs jobs` shows whether the command runs",
            )
        })
    }

    pub(super) async fn resize(&self, size: TerminalSize) -> Result<(), Error> {
        let request = WriteRequest {
            cols: Some(size.cols.into()),
            rows: Some(size.rows.into()),
            ..WriteRequest::new(&self.job.job_id)
        };
        // Safe to repeat: the second call sets the same size.
        let called: Result<WriteReply, Error> =
            self.client.call("write", &request, Repeat::Safe).await;
        called.map(drop)
    }

    pub(super) async fn signal(&self, request: &SignalRequest) -> Result<SignalReply, Error> {
        self.client.call("signal", request, Repeat::Never).await
    }
}

/// Why a server did not open a session.
fn refused(client: &ServerClient, error: tungstenite::Error) -> Error {
    let tungstenite::Error::Http(response) = error else {
        return client.broken(&error.to_string());
    };
    let body = response.body().as_deref().unwrap_or_default();
    serde_json::from_slice(body).unwrap_or_else(|_| {
        let message = format!(
            "the server at {} answers {}",
            client.address,
            response.status()
        );
        Error::new(
            Code::Unsupported,
            message,
            "a proxy on the way must let WebSockets pass",
        )
    })
}
