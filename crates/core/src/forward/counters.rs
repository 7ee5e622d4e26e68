//! Streams, bytes and errors of a forward.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_util::io::{InspectReader, InspectWriter};

use sshjobs_base::lock::lock;

/// Streams, bytes and errors of a forward since it was opened.
#[derive(Debug)]
pub(super) struct Counters {
    /// Streams that are open now.
    pub(super) open: watch::Sender<usize>,
    pub(super) streams: AtomicU64,
    /// From the side that listens to the target.
    pub(super) bytes_to_target: Arc<AtomicU64>,
    pub(super) bytes_from_target: Arc<AtomicU64>,
    pub(super) errors: AtomicU64,
    last_error: Mutex<Option<String>>,
}

/// A stream that is counted as open until this is dropped.
pub(super) struct OpenStream<'a>(&'a Counters);

impl Counters {
    pub(super) fn new() -> Self {
        Self {
            open: watch::Sender::new(0),
            streams: AtomicU64::new(0),
            bytes_to_target: Arc::default(),
            bytes_from_target: Arc::default(),
            errors: AtomicU64::new(0),
            last_error: Mutex::default(),
        }
    }

    pub(super) fn open_stream(&self) -> OpenStream<'_> {
        self.open.send_modify(|open| *open += 1);
        self.streams.fetch_add(1, Relaxed);
        OpenStream(self)
    }

    pub(super) fn note_error(&self, error: impl Into<String>) {
        self.errors.fetch_add(1, Relaxed);
        *lock(&self.last_error) = Some(error.into());
    }

    pub(super) fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }

    /// The client's stream, with its bytes counted.
    pub(super) fn metered(
        &self,
        client: impl AsyncRead + AsyncWrite + Unpin,
    ) -> impl AsyncRead + AsyncWrite + Unpin {
        let to_target = Arc::clone(&self.bytes_to_target);
        let from_target = Arc::clone(&self.bytes_from_target);
        let reader = InspectReader::new(client, move |bytes: &[u8]| {
            to_target.fetch_add(bytes.len() as u64, Relaxed);
        });
        InspectWriter::new(reader, move |bytes: &[u8]| {
            from_target.fetch_add(bytes.len() as u64, Relaxed);
        })
    }
}

impl Drop for OpenStream<'_> {
    fn drop(&mut self) {
        self.0.open.send_modify(|open| *open -= 1);
    }
}
