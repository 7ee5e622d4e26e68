//! `/v1/session`: a command, or the terminal of a job, over a WebSocket. A client that disconnects
//! ends the command that it has started, unless it has said that it leaves it running.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use axum::Extension;
use axum::body::Bytes;
use axum::extract::State;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use serde_json::{Map, Value};
use tokio::sync::mpsc;
use tokio::time::{interval, timeout};
use tokio_util::task::TaskTracker;

use crate::connections::ConnectionSlot;
use crate::peers::{WebSocketClient, pass_on_session};
use sshjobs_core::jobs::{Follow, FollowedBytes, Job, Refusal, WriteError};
use sshjobs_wire::{
    Error, JobEntry, Service, SessionChannel, SessionEvent, SessionRequest, SignalRequest,
};

/// Time limit for the first message, for closing stdin, and for the client's last messages.
const HELLO: Duration = Duration::from_secs(10);
/// Interval of pings, which detect lost clients.
const PING: Duration = Duration::from_secs(15);
/// Time limit for one write to a command that does not read its stdin, before the next attempt.
const PATIENCE: Duration = Duration::from_secs(3600);
/// Grace between TERM and KILL for a command whose client has disconnected.
const GRACE_MS: i64 = 2000;
/// Maximum bytes of a client's message. Each session may hold several for a command that does not read.
const MOST_MESSAGE: usize = 256 << 10;
/// Buffer of a session for what its client sends. Sessions are many, and mostly keys arrive.
const READ_BUFFER: usize = 8 << 10;

type Sink = SplitSink<WebSocket, Message>;

/// `GET /session`: upgrades to a WebSocket (RFC 6455) on which one command runs, or a job's terminal
/// is joined; see [`SessionRequest`] and [`SessionEvent`].
///
/// When the client disconnects, a command that it has started is ended unless it is durable, or the
/// client has left it running.
pub(crate) async fn session(
    Extension(service): Extension<Service>,
    place: Option<Extension<Arc<ConnectionSlot>>>,
    State(sessions): State<Arc<TaskTracker>>,
    upgrade: WebSocketUpgrade,
) -> Response {
    let upgrade = upgrade
        .max_message_size(MOST_MESSAGE)
        .max_frame_size(MOST_MESSAGE)
        .read_buffer_size(READ_BUFFER);
    // An open session is not idle.
    let busy = place.as_ref().map(|place| place.activity.begin());
    upgrade.on_upgrade(move |socket| {
        let (sink, stream) = socket.split();
        sessions.track_future(async move {
            attend(service, sink, stream).await;
            // Held up to here, so that an open session counts as a connection.
            drop((busy, place));
        })
    })
}

async fn attend(service: Service, mut sink: Sink, mut stream: SplitStream<WebSocket>) {
    let Ok(Some(Ok(Message::Text(first)))) = timeout(HELLO, stream.next()).await else {
        return;
    };
    let client = WebSocketClient {
        sink: &mut sink,
        stream: &mut stream,
    };
    // Not cancelled if the client leaves: a start that is cut off may leave a running job.
    let AttachedSession {
        mut follow,
        redraw,
        ends_with_client,
    } = match start_or_pass_on(&service, first.as_str(), client).await {
        Ok(Some(opened)) => opened,
        // Another replica has served it.
        Ok(None) => return,
        Err(error) => {
            say(&mut sink, &SessionEvent::Failed(error)).await;
            sink.close().await.ok();
            return;
        }
    };
    let job = follow.job().clone();
    let (said, says) = mpsc::channel(SessionChannel::STDIN_AHEAD);
    // If both are ready, either may win: a signal then reaches an ended job's leftovers.
    let is_left = AtomicBool::new(false);
    let is_ended = tokio::select! {
        is_ended = tell(&mut follow, redraw, &mut sink, says) => is_ended,
        () = listen(&job, &mut stream, said, &is_left) => false,
    };
    if is_ended {
        sink.close().await.ok();
        // Data from the client must not break the connection before it has read the end.
        drop(
            timeout(HELLO, async {
                while let Some(Ok(_)) = stream.next().await {}
            })
            .await,
        );
    } else if ends_with_client && !is_left.load(Relaxed) {
        let request = SignalRequest {
            grace_ms: Some(GRACE_MS),
            ..SignalRequest::new(job.id())
        };
        if let Err(error) = service.signal(request).await {
            tracing::info!(
                job = job.id(),
                %error,
                "the client has disconnected, and its command could not be ended"
            );
        }
    }
}

/// A session that can begin.
struct AttachedSession {
    follow: Follow,
    /// Bytes that draw the screen of a job that was joined.
    redraw: Vec<u8>,
    /// Whether the job is ended when the client disconnects.
    ends_with_client: bool,
}

/// Begins the session that the first message asks for. `None` if another replica has served it to
/// its end.
async fn start_or_pass_on(
    service: &Service,
    first: &str,
    client: WebSocketClient<'_>,
) -> Result<Option<AttachedSession>, Error> {
    let arguments: Map<String, Value> = serde_json::from_str(first).map_err(|_| {
        Error::invalid(
            "the first message is not a JSON object",
            "send the arguments of `spawn`",
        )
    })?;
    let request = SessionRequest::parse(arguments)?;
    let replica = match &request {
        SessionRequest::Start(command) => service.replica_of_host(&command.host).await?,
        SessionRequest::Attach(job_id) => service.replica_of_job(job_id).await,
    };
    match replica {
        None => start(service, request).await.map(Some),
        Some(replica) => {
            pass_on_session(service, &replica, first.to_owned(), client).await?;
            Ok(None)
        }
    }
}

async fn start(service: &Service, request: SessionRequest) -> Result<AttachedSession, Error> {
    match request {
        SessionRequest::Start(command) => {
            let follow = service.follow(*command).await?;
            let ends_with_client = !follow.job().is_durable();
            Ok(AttachedSession {
                follow,
                redraw: Vec::new(),
                ends_with_client,
            })
        }
        SessionRequest::Attach(job_id) => {
            let (redraw, follow) = service.attach(&job_id).await?;
            Ok(AttachedSession {
                follow,
                redraw,
                ends_with_client: false,
            })
        }
    }
}

/// Sends the command's events to the client. Returns whether it got all of them.
async fn tell(
    follow: &mut Follow,
    redraw: Vec<u8>,
    sink: &mut Sink,
    mut says: mpsc::Receiver<SessionEvent>,
) -> bool {
    let mut ping = interval(PING);
    let mut dropped = 0;
    if !say(
        sink,
        &SessionEvent::Started(Box::new(JobEntry::of(follow.job()))),
    )
    .await
    {
        return false;
    }
    let first = FollowedBytes {
        stdout: redraw,
        ..FollowedBytes::default()
    };
    if !send(sink, first).await {
        return false;
    }
    loop {
        let goes_on = tokio::select! {
            // Cancel safe, so that an event or a ping in between loses no output.
            output = follow.next() => {
                dropped += output.dropped_bytes;
                let is_last = output.outcome.is_some();
                let was_sent = send(sink, output).await;
                if is_last && was_sent {
                    let job = Box::new(JobEntry::of(follow.job()));
                    return say(sink, &SessionEvent::Ended { job, dropped_bytes: dropped }).await;
                }
                was_sent
            }
            Some(event) = says.recv() => say(sink, &event).await,
            _ = ping.tick() => sink.send(Message::Ping(Vec::new().into())).await.is_ok(),
        };
        if !goes_on {
            return false;
        }
    }
}

async fn send(sink: &mut Sink, output: FollowedBytes) -> bool {
    for (channel, bytes) in [
        (SessionChannel::Stdout, output.stdout),
        (SessionChannel::Stderr, output.stderr),
    ] {
        if !bytes.is_empty()
            && sink.send(Message::Binary(channel.frame(&bytes).into())).await.is_err()
        {
            return false;
        }
    }
    true
}

async fn say(sink: &mut Sink, event: &SessionEvent) -> bool {
    let text = serde_json::to_string(event).expect("an event is plain data");
    sink.send(Message::Text(text.into())).await.is_ok()
}

/// Passes data from the client to the command until the client disconnects. `is_left` becomes true
/// when the client leaves the command running.
async fn listen(
    job: &Job,
    stream: &mut SplitStream<WebSocket>,
    said: mpsc::Sender<SessionEvent>,
    is_left: &AtomicBool,
) {
    let (stdin, mut waiting) = mpsc::channel::<Bytes>(SessionChannel::STDIN_AHEAD);
    let writing = async {
        while let Some(bytes) = waiting.recv().await {
            // A command need not read its stdin to its end.
            if let Err(error) = write(job, &bytes).await {
                tracing::debug!(job = job.id(), %error, "stdin was not passed on");
                // The end of stdin has no bytes: a caller may run commands and not write to them.
                let has_bytes = bytes.len() > 1;
                if has_bytes && let sshjobs_core::jobs::Error::Refused(Refusal::Policy(_)) = &error
                {
                    said.send(SessionEvent::Failed(error.into())).await.ok();
                }
            }
            // Also after an error: the client waits for one `Taken` per message.
            said.send(SessionEvent::Taken).await.ok();
        }
        std::future::pending().await
    };
    let listening = async {
        while let Some(Ok(message)) = stream.next().await {
            match message {
                Message::Binary(bytes)
                    if matches!(SessionChannel::of(&bytes), Some((SessionChannel::Stdin, _))) =>
                {
                    // Never full for a client that stops at STDIN_AHEAD messages without a `Taken`.
                    if stdin.try_send(bytes).is_err() {
                        tracing::info!(
                            job = job.id(),
                            "its client sends more stdin than was taken"
                        );
                        return;
                    }
                }
                Message::Binary(bytes)
                    if matches!(SessionChannel::of(&bytes), Some((SessionChannel::Leave, _))) =>
                {
                    is_left.store(true, Relaxed);
                    said.send(SessionEvent::Left).await.ok();
                }
                Message::Close(_) => return,
                Message::Text(_) | Message::Binary(_) | Message::Ping(_) | Message::Pong(_) => {}
            }
        }
    };
    tokio::select! {
        () = listening => {}
        never = writing => never,
    }
}

/// Writes all bytes, however long the command does not read. Ends with the client's session.
async fn write_all(job: &Job, mut bytes: &[u8]) -> Result<(), sshjobs_core::jobs::Error> {
    loop {
        match job.write(bytes, PATIENCE).await {
            Err(sshjobs_core::jobs::Error::Write(WriteError::Backpressure { written })) => {
                bytes = bytes.get(written..).unwrap_or_default();
            }
            written => return written,
        }
    }
}

async fn write(job: &Job, message: &[u8]) -> Result<(), sshjobs_core::jobs::Error> {
    match message.get(1..).filter(|bytes| !bytes.is_empty()) {
        Some(bytes) => write_all(job, bytes).await,
        None => match job.close_stdin(HELLO).await {
            // The command may end before the client closes its stdin.
            Err(sshjobs_core::jobs::Error::Write(WriteError::JobEnded)) => Ok(()),
            closed => closed,
        },
    }
}
