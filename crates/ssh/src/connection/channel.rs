//! Session channels: requests, data and events, each call bounded in time.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicUsize};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use russh::client::Msg;
use russh::{ChannelMsg, ChannelReadHalf, ChannelWriteHalf};
use tokio::io::AsyncWriteExt;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::ChannelError;
use crate::trust::HostKeyCheck;
use sshjobs_output::TerminalSize;

/// An event on a session channel, with the names of RFC 4254.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelEvent {
    /// Data (§5.2): stdout.
    Data(Bytes),
    /// Extended data (§5.2). Its only type in use is stderr.
    ExtendedData(Bytes),
    /// No more data will follow (§5.3).
    Eof,
    /// The command's exit-status (§6.10).
    ExitStatus(u32),
    /// The command's exit-signal (§6.10), named without `SIG`.
    ExitSignal(String),
    /// The server accepted the exec request (§5.4).
    Success,
    /// The server refused the exec request (§5.4).
    Failure,
    /// The channel is closed (§5.3). No event follows.
    Close,
}

/// An open session channel on which nothing runs yet.
pub struct Channel {
    pub(super) channel: russh::Channel<Msg>,
    pub(super) time_limit: Duration,
    /// Cancelled once the connection is lost.
    pub(super) lost: CancellationToken,
    pub(super) closes: CloseCounter,
}

/// Counts the channels of a connection that we close before the server does.
///
/// russh 0.65 keeps its record of a channel that we close before the server (3 KiB) until the connection ends.
#[derive(Debug)]
pub(super) struct CloseCounter {
    is_closed: Arc<AtomicBool>,
    /// Channels of the connection that we closed before the server.
    closed_first: Arc<AtomicUsize>,
}

/// The receiving half of a channel.
#[derive(Debug)]
pub struct ChannelReader {
    half: ChannelReadHalf,
    /// Set once the channel is closed.
    is_closed: Arc<AtomicBool>,
    /// Events that were read and put back, oldest first.
    put_back: VecDeque<ChannelEvent>,
}

/// The sending half of a channel. Each call except [`write`](Self::write) and [`send`](Self::send) is
/// bounded by the connection's time limit.
pub struct ChannelWriter {
    half: ChannelWriteHalf<Msg>,
    time_limit: Duration,
    lost: CancellationToken,
    closes: CloseCounter,
}

/// Time limit for the server to close a channel after its program, or its stdin, has ended. Then we close it, and that takes
/// memory until the connection ends; see [`Connection::is_worn_out`](super::Connection::is_worn_out).
pub const SERVER_CLOSES: Duration = Duration::from_millis(500);
/// Maximum bytes of stdin that one call of [`ChannelWriter::write`] passes to russh.
const STDIN_PIECE: usize = 32 << 10;

impl CloseCounter {
    pub(super) fn new(closed_first: Arc<AtomicUsize>) -> Self {
        Self {
            is_closed: Arc::default(),
            closed_first,
        }
    }

    /// Notes that we close the channel, unless it is closed already.
    fn note_our_close(&self) {
        if !self.is_closed.swap(true, Relaxed) {
            self.closed_first.fetch_add(1, Relaxed);
        }
    }
}

impl Channel {
    /// Requests a pseudo-terminal (RFC 4254 §6.2) with this number of columns and rows, and waits
    /// for the reply.
    ///
    /// Dropping the future leaves the channel open on the server until the connection ends.
    pub async fn request_pty(
        &mut self,
        term: &str,
        size: TerminalSize,
    ) -> Result<(), ChannelError> {
        let asked = self.channel.request_pty(true, term, size.cols, size.rows, 0, 0, &[]);
        bounded(self.time_limit, asked).await?;
        let answer = async {
            loop {
                match self.channel.wait().await.map(translate) {
                    Some(Some(ChannelEvent::Success)) => return Ok(()),
                    Some(Some(ChannelEvent::Failure)) => return Err(ChannelError::PtyRefused),
                    Some(Some(ChannelEvent::Close)) | None => {
                        return Err(ChannelError::ConnectionLost);
                    }
                    // Other messages, such as WINDOW_ADJUST, may precede the reply.
                    Some(_) => {}
                }
            }
        };
        timeout(self.time_limit, answer)
            .await
            .unwrap_or(Err(ChannelError::TimedOut(self.time_limit)))
    }

    /// Whether the server has closed the channel, or will send nothing more on it.
    pub fn is_closed(&mut self) -> bool {
        loop {
            // Polls and never waits. No command runs on the channel yet, so other
            // messages can be dropped.
            let next = pin!(self.channel.wait()).poll(&mut Context::from_waker(Waker::noop()));
            match next.map(|message| message.map(translate)) {
                Poll::Pending => return false,
                Poll::Ready(None | Some(Some(ChannelEvent::Close | ChannelEvent::Eof))) => {
                    return true;
                }
                Poll::Ready(Some(_)) => {}
            }
        }
    }

    /// Closes a channel on which nothing was started, to free its session on the server.
    pub async fn close(self) -> Result<(), ChannelError> {
        self.closes.note_our_close();
        bounded(self.time_limit, self.channel.close()).await
    }

    /// Asks the server to run `command` (RFC 4254 §6.5). The reply arrives as an event.
    pub async fn exec(self, command: &str) -> Result<(ChannelReader, ChannelWriter), ChannelError> {
        self.start(async |half| half.exec(true, command).await).await
    }

    /// Asks the server to start a subsystem, such as `sftp` (RFC 4254 §6.5). The reply arrives as
    /// an event.
    pub async fn subsystem(
        self,
        name: &str,
    ) -> Result<(ChannelReader, ChannelWriter), ChannelError> {
        self.start(async |half| half.request_subsystem(true, name).await).await
    }

    /// Sends the request that starts a program on the channel.
    async fn start(
        self,
        request: impl AsyncFnOnce(&ChannelWriteHalf<Msg>) -> Result<(), russh::Error>,
    ) -> Result<(ChannelReader, ChannelWriter), ChannelError> {
        let (reader, half) = self.channel.split();
        let is_closed = Arc::clone(&self.closes.is_closed);
        let writer = ChannelWriter {
            half,
            time_limit: self.time_limit,
            lost: self.lost,
            closes: self.closes,
        };
        if let Err(error) = bounded(self.time_limit, request(&writer.half)).await {
            // The events have no reader. A lost connection needs no closing.
            writer.close().await.ok();
            return Err(error);
        }
        let reader = ChannelReader {
            half: reader,
            is_closed,
            put_back: VecDeque::new(),
        };
        Ok((reader, writer))
    }
}

impl ChannelReader {
    /// The next event. `None` without a previous [`ChannelEvent::Close`] means that the connection
    /// was lost.
    ///
    /// Must be called without delay: unread events block every channel of the connection. Cancel
    /// safe.
    pub async fn next(&mut self) -> Option<ChannelEvent> {
        if let Some(event) = self.put_back.pop_front() {
            return Some(event);
        }
        loop {
            if let Some(event) = translate(self.half.wait().await?) {
                if event == ChannelEvent::Close {
                    self.is_closed.store(true, Relaxed);
                }
                return Some(event);
            }
        }
    }

    /// Waits until the server has closed the channel, or the connection is lost. Drops what still comes.
    pub(crate) async fn closed(&mut self) {
        while !matches!(self.next().await, None | Some(ChannelEvent::Close)) {}
    }

    /// Puts events back, so that the next reader gets them first.
    pub fn put_back(&mut self, mut events: VecDeque<ChannelEvent>) {
        events.append(&mut self.put_back);
        self.put_back = events;
    }
}

#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "russh's enum is open, and the rest is never sent to a client"
)]
fn translate(message: ChannelMsg) -> Option<ChannelEvent> {
    Some(match message {
        ChannelMsg::Data { data } => ChannelEvent::Data(data),
        ChannelMsg::ExtendedData { data, .. } => ChannelEvent::ExtendedData(data),
        ChannelMsg::Eof => ChannelEvent::Eof,
        ChannelMsg::ExitStatus { exit_status } => ChannelEvent::ExitStatus(exit_status),
        ChannelMsg::ExitSignal { signal_name, .. } => {
            ChannelEvent::ExitSignal(signal_text(signal_name))
        }
        ChannelMsg::Success => ChannelEvent::Success,
        ChannelMsg::Failure => ChannelEvent::Failure,
        ChannelMsg::Close => ChannelEvent::Close,
        _ => return None,
    })
}

fn signal_text(signal: russh::Sig) -> String {
    match signal {
        // A name made up by the host must not contain anything except a name.
        russh::Sig::Custom(name) => name.chars().filter(char::is_ascii_graphic).take(64).collect(),
        known @ (russh::Sig::ABRT
        | russh::Sig::ALRM
        | russh::Sig::FPE
        | russh::Sig::HUP
        | russh::Sig::ILL
        | russh::Sig::INT
        | russh::Sig::KILL
        | russh::Sig::PIPE
        | russh::Sig::QUIT
        | russh::Sig::SEGV
        | russh::Sig::TERM
        | russh::Sig::USR1) => format!("{known:?}"),
    }
}

impl ChannelWriter {
    /// Sends some of `data` to stdin and returns the number of bytes sent. Waits while the window
    /// is closed.
    ///
    /// Cancel safe: if the future is dropped, nothing was sent. One exception: if russh's own queue was full,
    /// the window stays smaller by these bytes.
    pub async fn write(&self, data: &[u8]) -> Result<usize, ChannelError> {
        let piece = &data[..data.len().min(STDIN_PIECE)];
        let mut writer = self.half.make_writer();
        tokio::select! {
            written = writer.write(piece) => written.map_err(|_| ChannelError::ConnectionLost),
            // A window of a lost connection never opens again, and russh does not report that.
            () = self.lost.cancelled() => Err(ChannelError::ConnectionLost),
        }
    }

    /// Sends all of `data`, without copying it. Waits while the window is closed. Cancelling may
    /// leave a part sent.
    pub async fn send(&self, data: Bytes) -> Result<(), ChannelError> {
        tokio::select! {
            sent = self.half.data_bytes(data) => sent.map_err(|_| ChannelError::ConnectionLost),
            // As in `write`.
            () = self.lost.cancelled() => Err(ChannelError::ConnectionLost),
        }
    }

    /// Closes stdin (RFC 4254 §5.3).
    pub async fn eof(&self) -> Result<(), ChannelError> {
        bounded(self.time_limit, self.half.eof()).await
    }

    /// Asks the server to signal the command (RFC 4254 §6.9). There is no reply, and servers may
    /// ignore it.
    pub async fn signal(&self, name: &str) -> Result<(), ChannelError> {
        bounded(self.time_limit, self.half.signal(signal_from(name))).await
    }

    /// Sets the size of the terminal in columns and rows (RFC 4254 §6.7).
    pub async fn resize(&self, size: TerminalSize) -> Result<(), ChannelError> {
        let asked = self.half.window_change(size.cols, size.rows, 0, 0);
        bounded(self.time_limit, asked).await
    }

    /// Ends a program that ends with its stdin, and lets the server close the channel; see [`SERVER_CLOSES`].
    pub async fn end(&self, reader: &mut ChannelReader) {
        // A lost connection needs no closing.
        self.eof().await.ok();
        if timeout(SERVER_CLOSES, reader.closed()).await.is_err() {
            self.close().await.ok();
        }
    }

    /// Closes the channel. No event follows, not even the server's own Close.
    pub async fn close(&self) -> Result<(), ChannelError> {
        self.closes.note_our_close();
        bounded(self.time_limit, self.half.close()).await
    }
}

fn signal_from(name: &str) -> russh::Sig {
    use russh::Sig;
    match name {
        "ABRT" => Sig::ABRT,
        "ALRM" => Sig::ALRM,
        "FPE" => Sig::FPE,
        "HUP" => Sig::HUP,
        "ILL" => Sig::ILL,
        "INT" => Sig::INT,
        "KILL" => Sig::KILL,
        "PIPE" => Sig::PIPE,
        "QUIT" => Sig::QUIT,
        "SEGV" => Sig::SEGV,
        "TERM" => Sig::TERM,
        "USR1" => Sig::USR1,
        other => Sig::Custom(other.to_owned()),
    }
}

async fn bounded<T>(
    limit: Duration,
    call: impl Future<Output = Result<T, russh::Error>>,
) -> Result<T, ChannelError> {
    match timeout(limit, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(russh::Error::ChannelOpenFailure(_))) => Err(ChannelError::OpenRefused),
        Ok(Err(_)) => Err(ChannelError::ConnectionLost),
        Err(_) => Err(ChannelError::TimedOut(limit)),
    }
}

/// Opens a channel. If the caller stops waiting, closes it again, so that the server does not keep
/// an unused one.
#[expect(
    clippy::disallowed_methods,
    reason = "it outlives its caller on purpose, and is bounded in time"
)]
pub(super) async fn open(
    handle: Arc<russh::client::Handle<HostKeyCheck>>,
    time_limit: Duration,
    lost: CancellationToken,
    closed_first: Arc<AtomicUsize>,
) -> Result<Channel, ChannelError> {
    let (sender, receiver) = oneshot::channel();
    let closes = CloseCounter::new(Arc::clone(&closed_first));
    tokio::spawn(async move {
        let opened = bounded(time_limit, handle.channel_open_session()).await;
        // russh does not close a channel on the server when it is dropped.
        if let Err(Ok(unwanted)) = sender.send(opened) {
            closed_first.fetch_add(1, Relaxed);
            // A lost connection needs no closing.
            unwanted.close().await.ok();
        }
    });
    let channel = receiver.await.unwrap_or(Err(ChannelError::ConnectionLost))?;
    Ok(Channel {
        channel,
        time_limit,
        lost,
        closes,
    })
}
