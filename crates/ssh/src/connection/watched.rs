//! A transport that detects silence, can stop receiving, and yields to other tasks.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use sshjobs_base::lock::{LockGuard, lock};

/// Bytes received before the task yields to others of its thread. tokio's own budget of 128 reads can be
/// four megabytes, which take 10 ms or more to decrypt.
const TURN_BYTES: usize = 256 << 10;

/// A stream that fails when no data moves for too long, and that can be held back.
///
/// russh sends keepalives, but it can't distinguish a held host from a lost one, and sends none
/// while a write is pending. So russh is configured never to give up, and this stream detects a
/// lost peer. A held stream receives nothing, so that the far end has to wait, and still sends: a
/// server that expects signs of life gets them. In a flood, other tasks get their turns.
pub(super) struct WatchedStream<S> {
    inner: S,
    pulse: Pulse,
    longest_silence: Duration,
    /// Timer while a write is pending.
    writing: Option<Pin<Box<Sleep>>>,
    /// Timer while nothing arrives.
    reading: Option<Pin<Box<Sleep>>>,
    /// Bytes received since the task yielded or waited.
    received_in_turn: usize,
}

/// Signs of life of a stream, shared with the owner of the connection over it.
#[derive(Clone, Debug)]
pub(super) struct Pulse {
    signs: Arc<Mutex<Signs>>,
    /// Cancelled once the stream is gone.
    lost: CancellationToken,
}

#[derive(Debug)]
struct Signs {
    /// Time of the last received data, or of the last change of what is expected.
    heard: Instant,
    /// Keepalives are sent, so silence means that the peer is lost.
    is_talking: bool,
    is_held: bool,
    /// Task that waits for data, to be woken when the stream is held or released.
    reader: Option<Waker>,
}

impl Pulse {
    pub(super) fn new() -> Self {
        let signs = Signs {
            heard: Instant::now(),
            is_talking: false,
            is_held: false,
            reader: None,
        };
        Self {
            signs: Arc::new(Mutex::new(signs)),
            lost: CancellationToken::new(),
        }
    }

    /// Cancelled once the connection is lost or closed.
    pub(super) fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Time of the last received data.
    pub(super) fn heard_at(&self) -> Instant {
        self.signs().heard
    }

    /// From here on keepalives are sent, and silence means that the peer is lost.
    pub(super) fn expect_answers(&self) {
        let mut signs = self.signs();
        // Needs no wake-up: the timer for keepalives runs in the task that reads the stream.
        (signs.is_talking, signs.heard) = (true, Instant::now());
    }

    /// Stops or resumes receiving.
    pub(super) fn hold(&self, is_held: bool) {
        let mut signs = self.signs();
        if signs.is_held != is_held {
            // Nothing is read while the stream is held, so silence is counted from its release.
            (signs.is_held, signs.heard) = (is_held, Instant::now());
        }
        // A held reader does not poll the inner stream, so only this call wakes it.
        if let Some(reader) = signs.reader.take() {
            reader.wake();
        }
    }

    pub(super) fn is_held(&self) -> bool {
        self.signs().is_held
    }

    fn signs(&self) -> LockGuard<'_, Signs> {
        lock(&self.signs)
    }
}

impl<S> Drop for WatchedStream<S> {
    fn drop(&mut self) {
        // However a session ends, russh drops its stream.
        self.pulse.lost.cancel();
    }
}

impl<S> WatchedStream<S> {
    pub(super) fn new(inner: S, pulse: Pulse, longest_silence: Duration) -> Self {
        Self {
            inner,
            pulse,
            longest_silence,
            writing: None,
            reading: None,
            received_in_turn: 0,
        }
    }

    /// Fails once a write has been pending for too long.
    fn watch_write<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        // Any progress restarts the limit, so a slow host is not taken for a lost one.
        if written.is_ready() {
            self.writing = None;
            return written;
        }
        let longest = self.longest_silence;
        let writing = self
            .writing
            .get_or_insert_with(|| Box::pin(sleep_until(Instant::now() + longest)));
        ready!(writing.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the host takes nothing any more",
        )))
    }

    /// Fails if data was expected and none arrived for too long.
    fn watch_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let end = {
            let signs = self.pulse.signs();
            // russh sends no keepalives before the login is complete, and a person may take long.
            if !signs.is_talking {
                return Poll::Pending;
            }
            signs.heard + self.longest_silence
        };
        let reading = self.reading.get_or_insert_with(|| Box::pin(sleep_until(end)));
        // Received data moves the deadline. The timer is reset only when it has expired.
        loop {
            ready!(reading.as_mut().poll(context));
            if Instant::now() >= end {
                break;
            }
            reading.as_mut().reset(end);
        }
        Poll::Ready(Err(io::Error::new(
            io::ErrorKind::TimedOut,
            "the host does not answer any more",
        )))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        {
            let mut signs = self.pulse.signs();
            if signs.is_held {
                // Under the same lock as the check: a release in between would wake no reader.
                signs.reader = Some(context.waker().clone());
                return Poll::Pending;
            }
        }
        if self.received_in_turn >= TURN_BYTES {
            self.received_in_turn = 0;
            // Schedules the next poll, behind the other tasks.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        let before = buffer.filled().len();
        match Pin::new(&mut self.inner).poll_read(context, buffer) {
            Poll::Pending => {
                self.received_in_turn = 0;
                // The stream may be held before anything arrives.
                self.pulse.signs().reader = Some(context.waker().clone());
                self.watch_read(context)
            }
            Poll::Ready(read) => {
                // An empty read means the end of the stream and is no sign of life.
                let received = buffer.filled().len() - before;
                if received > 0 {
                    self.pulse.signs().heard = Instant::now();
                }
                self.received_in_turn += received;
                Poll::Ready(read)
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, data);
        self.watch_write(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.watch_write(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(context);
        self.watch_write(shut, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};
    use tokio::time::sleep;

    use super::*;

    const SILENCE: Duration = Duration::from_secs(3);

    #[tokio::test(start_paused = true)]
    async fn a_write_that_does_not_move_fails_in_time() {
        let (ours, _theirs) = duplex(16);
        let mut stream = WatchedStream::new(ours, Pulse::new(), SILENCE);
        let began = Instant::now();
        let error = stream.write_all(&[0; 17]).await.unwrap_err();
        assert_eq!(
            (error.kind(), began.elapsed().as_secs()),
            (io::ErrorKind::TimedOut, 3)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_moves_slowly_does_not() {
        let (ours, mut theirs) = duplex(16);
        let mut stream = WatchedStream::new(ours, Pulse::new(), SILENCE);
        let reading = async {
            for _ in 0..10 {
                sleep(SILENCE - Duration::from_millis(10)).await;
                theirs.read_exact(&mut [0; 8]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[0; 80]), reading);
        written.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn silence_is_a_loss_only_where_answers_are_expected() {
        let (ours, mut theirs) = duplex(16);
        let pulse = Pulse::new();
        let mut stream = WatchedStream::new(ours, pulse.clone(), SILENCE);
        let waited = tokio::time::timeout(SILENCE * 10, stream.read_u8()).await;
        assert!(waited.is_err(), "a person may take as long to log in");
        pulse.expect_answers();
        theirs.write_all(b"x").await.unwrap();
        stream.read_u8().await.unwrap();
        let began = Instant::now();
        assert_eq!(
            stream.read_u8().await.unwrap_err().kind(),
            io::ErrorKind::TimedOut
        );
        assert_eq!(began.elapsed(), SILENCE);
    }

    #[tokio::test]
    async fn a_flood_lets_other_tasks_run() {
        const PIECE: usize = 32 << 10;
        let (ours, mut theirs) = duplex(1 << 20);
        let mut stream = WatchedStream::new(ours, Pulse::new(), SILENCE);
        theirs.write_all(&[0; 1 << 20]).await.unwrap();
        let reading = async {
            for _ in 0..(1 << 20) / PIECE {
                stream.read_exact(&mut [0; PIECE]).await.unwrap();
            }
        };
        let mut turns = 0;
        let others = std::future::poll_fn(|context| {
            turns += 1;
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        tokio::select! {
            biased;
            () = reading => {}
            () = others => {}
        }
        assert_eq!(turns, (1 << 20) / TURN_BYTES - 1);
    }

    #[tokio::test]
    async fn a_flood_goes_on_although_nothing_else_wakes_its_task() {
        let (ours, mut theirs) = duplex(4 * TURN_BYTES);
        let mut stream = WatchedStream::new(ours, Pulse::new(), SILENCE);
        theirs.write_all(&vec![0; 4 * TURN_BYTES]).await.unwrap();
        let reading = async {
            for _ in 0..8 {
                stream.read_exact(&mut vec![0; TURN_BYTES / 2]).await.unwrap();
            }
        };

        tokio::time::timeout(Duration::from_secs(10), reading).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_stream_that_is_held_waits_without_end_and_loses_nothing() {
        let (ours, mut theirs) = duplex(16);
        let pulse = Pulse::new();
        let mut stream = WatchedStream::new(ours, pulse.clone(), SILENCE);
        pulse.expect_answers();
        pulse.hold(true);
        theirs.write_all(b"x").await.unwrap();
        assert!(tokio::time::timeout(SILENCE * 10, stream.read_u8()).await.is_err());
        let letting_go = async {
            sleep(SILENCE).await;
            pulse.hold(false);
        };
        let (read, ()) = tokio::join!(stream.read_u8(), letting_go);
        assert_eq!(read.unwrap(), b'x');
        // It can be held while it waits.
        let holding = async {
            sleep(SILENCE / 2).await;
            pulse.hold(true);
            sleep(SILENCE * 10).await;
        };
        tokio::select! {
            read = stream.read_u8() => panic!("{read:?}"),
            () = holding => {}
        }
    }
}
