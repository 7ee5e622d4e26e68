//! Stdin, stdout and stderr of a job, for tokio.

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

/// The standard input of a job. Dropping it leaves stdin open; shutting it down closes it.
///
/// Writing waits as long as the command does not read. A write that is under way when this is dropped
/// may be sent in part.
pub struct StdinPipe {
    job: core_jobs::Job,
    pending: Option<PendingWrite>,
}

/// A write, or the closing of stdin, that is under way.
enum PendingWrite {
    Bytes {
        length: usize,
        done: BoxFuture<'static, io::Result<()>>,
    },
    Close(BoxFuture<'static, io::Result<()>>),
}

/// Most bytes that are sent at a time.
const MOST_WRITTEN: usize = 64 << 10;

/// How long one attempt waits for a command that does not read.
const ATTEMPT: Duration = Duration::from_secs(60);

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
        let pieces = pieces.flat_map(futures_util::stream::iter).boxed();
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
        Self { job, pending: None }
    }

    /// Waits for the pending write, if there is one, and returns its length.
    fn poll_pending(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let written = match &mut self.pending {
            None => Ok(0),
            Some(PendingWrite::Bytes { length, done }) => {
                ready!(done.as_mut().poll(context)).map(|()| *length)
            }
            Some(PendingWrite::Close(done)) => ready!(done.as_mut().poll(context)).map(|()| 0),
        };
        self.pending = None;
        Poll::Ready(written)
    }
}

impl AsyncWrite for StdinPipe {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        if self.pending.is_none() {
            let bytes = bytes[..bytes.len().min(MOST_WRITTEN)].to_vec();
            self.pending = Some(PendingWrite::Bytes {
                length: bytes.len(),
                done: Box::pin(write_all(self.job.clone(), bytes)),
            });
        }
        self.poll_pending(context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_pending(context).map_ok(|_length| ())
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !matches!(self.pending, Some(PendingWrite::Close(_))) {
            ready!(self.poll_pending(context))?;
            let job = self.job.clone();
            let close = async move { job.close_stdin(ATTEMPT).await.map_err(broken_pipe) };
            self.pending = Some(PendingWrite::Close(Box::pin(close)));
        }
        self.poll_pending(context).map_ok(|_length| ())
    }
}

/// Writes all bytes, however long the command does not read.
async fn write_all(job: core_jobs::Job, bytes: Vec<u8>) -> io::Result<()> {
    let mut rest = bytes.as_slice();
    loop {
        match job.write(rest, ATTEMPT).await {
            Ok(()) => return Ok(()),
            Err(Error::Write(WriteError::Backpressure { written })) => rest = &rest[written..],
            Err(error) => return Err(broken_pipe(error)),
        }
    }
}

fn broken_pipe(error: Error) -> io::Error {
    io::Error::new(io::ErrorKind::BrokenPipe, error)
}
