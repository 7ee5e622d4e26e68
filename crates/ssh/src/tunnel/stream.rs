//! A stream through a connection.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use russh::ChannelStream;
use russh::client::Msg;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::closes::{CloseWatch, Closes};

/// A stream through a connection. Shutting it down passes the end on (RFC 4254, section 5.3), and
/// the other direction stays open. Writing to a stream that the server has closed fails, once
/// everything that it has sent was read.
pub struct Tunnel {
    stream: ChannelStream<Msg>,
    watch: CloseWatch,
    /// Whether everything that the host has sent was read.
    has_read_all: bool,
    /// A writer that waits.
    writer: Option<Waker>,
}

impl Tunnel {
    pub(crate) fn new(channel: russh::Channel<Msg>, closes: &Closes) -> Self {
        Self {
            watch: closes.watch(channel.id()),
            stream: channel.into_stream(),
            has_read_all: false,
            writer: None,
        }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if matches!(read, Poll::Ready(Ok(()))) && buffer.filled().len() == filled {
            self.has_read_all = true;
            // It may wait for a window that never opens.
            if let Some(writer) = self.writer.take() {
                writer.wake();
            }
        }
        read
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        if written.is_ready() {
            return written;
        }
        // An error ends the stream, so not before the last answer was read.
        if self.has_read_all && self.watch.is_closed(cx) {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.writer = Some(cx.waker().clone());
        Poll::Pending
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
