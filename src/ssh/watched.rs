use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

/// A stream that fails when what is written to it does not move for too long.
///
/// russh sends no keepalives while a write is pending, so it would wait for a frozen host for ever.
pub(super) struct Watched<S> {
    inner: S,
    heard: Heard,
    longest_stall: Duration,
    /// There while a write is pending.
    stalled: Option<Pin<Box<Sleep>>>,
}

/// When something last came over a connection.
#[derive(Clone, Debug)]
pub(super) struct Heard(Arc<Mutex<Instant>>);

impl Heard {
    pub(super) fn now() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    pub(super) fn at(&self) -> Instant {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note(&self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }
}

impl<S> Watched<S> {
    pub(super) fn new(inner: S, heard: Heard, longest_stall: Duration) -> Self {
        Self { inner, heard, longest_stall, stalled: None }
    }

    /// Fails once a write has been pending for too long.
    fn watch<T>(&mut self, written: Poll<io::Result<T>>, context: &mut Context<'_>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let longest = self.longest_stall;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(longest)));
        ready!(stalled.as_mut().poll(context));
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, "the host takes nothing any more")))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.heard.note();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, data);
        self.watch(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.watch(flushed, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.inner).poll_shutdown(context);
        self.watch(shut, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    use super::*;

    const STALL: Duration = Duration::from_secs(3);

    #[tokio::test(start_paused = true)]
    async fn a_write_that_does_not_move_fails_in_time() {
        let (ours, _theirs) = duplex(16);
        let mut stream = Watched::new(ours, Heard::now(), STALL);
        let began = Instant::now();
        let error = stream.write_all(&[0; 17]).await.unwrap_err();
        assert_eq!((error.kind(), began.elapsed().as_secs()), (io::ErrorKind::TimedOut, 3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_moves_slowly_does_not() {
        let (ours, mut theirs) = duplex(16);
        let mut stream = Watched::new(ours, Heard::now(), STALL);
        let reading = async {
            for _ in 0..10 {
                sleep(STALL - Duration::from_millis(10)).await;
                theirs.read_exact(&mut [0; 8]).await.unwrap();
            }
        };
        let (written, ()) = tokio::join!(stream.write_all(&[0; 80]), reading);
        written.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn what_comes_is_noted() {
        let (ours, mut theirs) = duplex(16);
        let heard = Heard::now();
        let mut stream = Watched::new(ours, heard.clone(), STALL);
        sleep(STALL).await;
        assert_eq!(heard.at().elapsed(), STALL);
        theirs.write_all(b"x").await.unwrap();
        stream.read_u8().await.unwrap();
        assert_eq!(heard.at().elapsed(), Duration::ZERO);
    }
}
