//! Stdin, stdout and stderr of a job, for tokio.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream::{BoxStream, StreamExt, unfold};
use sshjobs_core::jobs as core_jobs;
use sshjobs_core::jobs::{Error, ReadableJob, Stream, WriteError};
use tokio::io::{AsyncBufRead, AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::io::StreamReader;

/// One stream of a job's output, from its first byte on, until the job ends. Any number of them can be
/// read at the same time; dropping one ends nothing.
///
/// A job does not wait for its readers. If bytes were evicted before they were read, the next read fails
/// with their number, and reading continues after the gap. For a reader that may be slow, use
/// [`Host::follow`](crate::Host::follow).
pub struct OutputPipe {
    reader: StreamReader<BoxStream<'static, io::Result<Bytes>>, Bytes>,
}

/// The standard input of a job. Shutting it down closes it; dropping it does not, unlike a child process of
/// tokio.
///
/// Writing waits as long as the command does not read. A write whose future is dropped is still sent, by
/// the next write, flush or shutdown; a next write that begins with the same bytes counts as the same.
/// A policy is asked about each piece of at most 64 KiB.
pub struct StdinPipe {
    job: core_jobs::Job,
    state: PipeState,
}

enum PipeState {
    Open,
    Writing {
        sent: Bytes,
        done: BoxFuture<'static, io::Result<()>>,
    },
    Closing(BoxFuture<'static, io::Result<()>>),
    Closed,
}

/// Most bytes that are sent at a time.
const MOST_WRITTEN: usize = 64 << 10;

/// Time limit for one attempt to write to a command that does not read.
const ATTEMPT_LIMIT: Duration = Duration::from_secs(60);

impl PipeState {
    /// Whether a write is under way that has begun with the start of these bytes.
    fn is_writing(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Writing { sent, .. } => bytes.starts_with(sent),
            Self::Open | Self::Closing(_) | Self::Closed => false,
        }
    }
}

impl OutputPipe {
    pub(crate) fn new(job: ReadableJob, stream: Stream) -> Self {
        let pieces = unfold(Some(0), move |position: Option<u64>| {
            let job = job.clone();
            async move {
                let piece = job.stream_piece(stream, position?).await;
                let next = (!piece.at_end).then_some(piece.end);
                let gap = (piece.dropped_bytes > 0).then(|| Err(evicted(piece.dropped_bytes)));
                let bytes = Ok(Bytes::from(piece.bytes));
                Some((gap.into_iter().chain([bytes]), next))
            }
        });
        let pieces = pieces.flat_map(futures_util::stream::iter).fuse().boxed();
        Self {
            reader: StreamReader::new(pieces),
        }
    }
}

fn evicted(bytes: u64) -> io::Error {
    io::Error::other(format!("{bytes} bytes were evicted before they were read"))
}

impl AsyncRead for OutputPipe {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.reader).poll_read(context, buffer)
    }
}

impl AsyncBufRead for OutputPipe {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        Pin::new(&mut self.get_mut().reader).poll_fill_buf(context)
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        Pin::new(&mut self.reader).consume(amount);
    }
}

impl StdinPipe {
    pub(crate) fn new(job: core_jobs::Job) -> Self {
        Self {
            job,
            state: PipeState::Open,
        }
    }

    /// Waits for the write that is under way, and returns its length; 0 if there is none.
    fn poll_written(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let PipeState::Writing { sent, done } = &mut self.state else {
            return Poll::Ready(Ok(0));
        };
        let length = sent.len();
        let written = ready!(done.as_mut().poll(context));
        self.state = PipeState::Open;
        Poll::Ready(written.map(|()| length))
    }
}

impl AsyncWrite for StdinPipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if !self.state.is_writing(bytes) {
            // Its future was dropped: it is sent first.
            ready!(self.poll_written(context))?;
            if !matches!(self.state, PipeState::Open) {
                return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
            }
            let sent = Bytes::copy_from_slice(&bytes[..bytes.len().min(MOST_WRITTEN)]);
            self.state = PipeState::Writing {
                done: Box::pin(write_all(self.job.clone(), sent.clone())),
                sent,
            };
        }
        self.poll_written(context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_written(context).map_ok(|_length| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = std::mem::replace(&mut self.state, PipeState::Closed);
        let mut closing: BoxFuture<'static, io::Result<()>> = match before {
            PipeState::Closed => return Poll::Ready(Ok(())),
            PipeState::Closing(closing) => closing,
            PipeState::Open => Box::pin(close(self.job.clone())),
            PipeState::Writing { done, .. } => {
                let job = self.job.clone();
                Box::pin(async move {
                    let written = done.await;
                    // Also after a failed write: otherwise the command would wait for input for ever.
                    close(job).await?;
                    written
                })
            }
        };
        let closed = closing.as_mut().poll(context);
        if closed.is_pending() {
            self.state = PipeState::Closing(closing);
        }
        closed
    }
}

impl fmt::Debug for StdinPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("StdinPipe").field(&self.job.id()).finish()
    }
}

impl fmt::Debug for OutputPipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutputPipe").finish_non_exhaustive()
    }
}

/// Writes all bytes, however long the command does not read.
async fn write_all(job: core_jobs::Job, bytes: Bytes) -> io::Result<()> {
    let mut rest = &bytes[..];
    while !rest.is_empty() {
        match job.write(rest, ATTEMPT_LIMIT).await {
            Ok(()) => return Ok(()),
            Err(Error::Write(WriteError::Backpressure { written })) => rest = &rest[written..],
            Err(error) => return Err(stdin_error(error)),
        }
    }
    Ok(())
}

/// Closes stdin after all that is written to it. A job that has ended needs no closing.
async fn close(job: core_jobs::Job) -> io::Result<()> {
    loop {
        match job.close_stdin(ATTEMPT_LIMIT).await {
            Ok(()) | Err(Error::Write(WriteError::StdinClosed | WriteError::JobEnded)) => {
                return Ok(());
            }
            // Another writer of the job waits for the command to read.
            Err(Error::Write(WriteError::Backpressure { .. })) => {}
            Err(error) => return Err(stdin_error(error)),
        }
    }
}

fn stdin_error(error: Error) -> io::Error {
    let kind = if matches!(error, Error::Refused(_)) {
        io::ErrorKind::PermissionDenied
    } else if matches!(error, Error::Write(WriteError::Starting)) {
        io::ErrorKind::NotConnected
    } else if matches!(
        error,
        Error::Write(WriteError::StdinClosed | WriteError::JobEnded)
    ) {
        io::ErrorKind::BrokenPipe
    } else {
        io::ErrorKind::Other
    };
    io::Error::new(kind, error)
}
