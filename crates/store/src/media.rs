//! Interface of the storage that holds segments: files, or memory.

use std::io;
use std::sync::Arc;

use tokio::sync::watch;
use tokio::task::JoinSet;

use sshjobs_job::JobId;

/// Storage of output: segments of each job, each with an index.
pub trait Media: Send + Sync + 'static {
    /// The numbers of a job's segments, in ascending order.
    fn segments(&self, job: &JobId) -> io::Result<Vec<u64>>;

    /// Opens a part of a segment. With [`OpenMode::Write`], creates a missing part.
    fn open(&self, job: &JobId, part: SegmentPart, access: OpenMode) -> io::Result<Arc<dyn Blob>>;

    /// Deletes a segment. Succeeds if it does not exist.
    fn remove(&self, job: &JobId, segment: u64) -> io::Result<()>;

    /// Deletes everything of a job.
    fn remove_all(&self, job: &JobId) -> io::Result<()>;

    /// Makes sure that later reads find all output that is stored now, also where several servers
    /// have copies that may be old.
    fn catch_up(&self) -> io::Result<()> {
        Ok(())
    }

    /// Reports output that another process appends.
    fn news(&self) -> News {
        News::default()
    }
}

/// Reports that a job's output has grown, if its storage can.
#[derive(Default)]
pub struct News(Option<NewsSource>);

struct NewsSource {
    /// Changes with every append.
    grown: watch::Receiver<u64>,
    /// The task that listens for appends. It ends with this value.
    _listening: JoinSet<()>,
}

impl News {
    /// News that a task sends.
    pub fn new(grown: watch::Receiver<u64>, listening: JoinSet<()>) -> Self {
        Self(Some(NewsSource {
            grown,
            _listening: listening,
        }))
    }

    /// Whether the storage reports news at all. If not, a reader has to look.
    pub fn are_told(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for the next append. For ever if the storage does not tell. Cancel safe.
    pub async fn next(&mut self) {
        if let Some(told) = &mut self.0
            && told.grown.changed().await.is_ok()
        {
            return;
        }
        std::future::pending().await
    }
}

/// A part of a job's stored output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SegmentPart {
    /// Its frames.
    Frames(u64),
    /// Its index.
    Index(u64),
    /// Filters, by which a search passes over pieces that can't contain a text.
    Filters(u64),
    /// Not part of a segment: the list of deleted output.
    Forgotten,
}

impl SegmentPart {
    /// The parts of a segment, in the order of their deletion. Frames last: only they are listed, so other parts
    /// that an interrupted deletion has left would never be found.
    pub fn of_segment(segment: u64) -> [Self; 3] {
        [
            Self::Filters(segment),
            Self::Index(segment),
            Self::Frames(segment),
        ]
    }
}

/// Mode of opening a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenMode {
    /// An existing part.
    Read,
    /// A part that is created if it is missing.
    Write,
}

/// Bytes that grow at their end.
pub trait Blob: Send + Sync {
    /// Writes bytes to the operating system. After an error some of them may be written.
    fn append(&self, bytes: &[u8]) -> io::Result<()>;

    /// Cuts off the bytes after `length`.
    fn truncate(&self, length: u64) -> io::Result<()>;

    /// Number of bytes.
    fn length(&self) -> io::Result<u64>;

    /// Reads from a position on. Returns the number of bytes read, 0 at the end.
    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize>;

    /// Waits until appended bytes are on disk.
    fn sync(&self) -> io::Result<()>;

    /// Whether its bytes are on this machine, so that its length is found at once.
    fn is_local(&self) -> bool {
        true
    }
}

/// All bytes of a blob.
pub fn read_all(blob: &dyn Blob) -> io::Result<Vec<u8>> {
    let length = usize::try_from(blob.length()?).map_err(|_| io::ErrorKind::FileTooLarge)?;
    let mut bytes = vec![0; length];
    let read = read_into(&mut bytes, blob, 0)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// Reads from a position on until the buffer is full or the blob ends. Returns the number of bytes
/// read.
pub fn read_into(buffer: &mut [u8], blob: &dyn Blob, position: u64) -> io::Result<usize> {
    let mut read = 0;
    while read < buffer.len() {
        match blob.read_at(&mut buffer[read..], position + read as u64)? {
            0 => break,
            more => read += more,
        }
    }
    Ok(read)
}
