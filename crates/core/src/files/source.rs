//! Content to write to a host: bytes in memory, a file of this machine, or a stream.

use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, ReadBuf};

use super::{Digest, Hasher};

/// Content to write to a host.
pub enum FileSource {
    /// Bytes in memory.
    Memory(Bytes),
    /// A file of this machine.
    File(LocalFile),
    /// A stream. It is read once, so its transfer can't be resumed.
    Stream(Pin<Box<dyn AsyncRead + Send>>),
}

/// An open file of this machine.
#[derive(Clone, Debug)]
pub struct LocalFile {
    file: Arc<File>,
    /// Identifies its content for a transfer that is resumed: path, size and time of change.
    pub(super) identity: String,
    /// Size when it was opened.
    pub size: u64,
}

impl LocalFile {
    /// An open regular file at `path`. A transfer of it can be resumed as long as its size and time
    /// of change are the same.
    pub fn open(path: &Path, file: File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let changed = format!("{}.{:09}", metadata.mtime(), metadata.mtime_nsec());
        Ok(Self {
            file: Arc::new(file),
            identity: format!("{} {} {changed}", path.display(), metadata.len()),
            size: metadata.len(),
        })
    }
}

impl FileSource {
    /// The same content for another attempt. `None` for a stream.
    pub fn again(&self) -> Option<Self> {
        match self {
            Self::Memory(bytes) => Some(Self::Memory(bytes.clone())),
            Self::File(file) => Some(Self::File(file.clone())),
            Self::Stream(_) => None,
        }
    }

    /// The same content, which fails where a stream turns out to have more than `most` bytes.
    #[must_use]
    pub(super) fn limited(self, most: u64) -> Self {
        match self {
            Self::Stream(stream) => Self::Stream(Box::pin(LimitedStream {
                stream,
                left: most,
                most,
            })),
            Self::Memory(_) | Self::File(_) => self,
        }
    }

    /// Its size, if it is known.
    pub fn size(&self) -> Option<u64> {
        match self {
            Self::Memory(bytes) => u64::try_from(bytes.len()).ok(),
            Self::File(file) => Some(file.size),
            Self::Stream(_) => None,
        }
    }
}

/// A stream that fails after some bytes.
struct LimitedStream {
    stream: Pin<Box<dyn AsyncRead + Send>>,
    left: u64,
    most: u64,
}

impl AsyncRead for LimitedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = self.stream.as_mut().poll_read(context, buffer);
        let bytes = (buffer.filled().len() - before) as u64;
        if bytes > self.left {
            let message = format!(
                "it has more than {} bytes, the most that is allowed",
                self.most
            );
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::FileTooLarge, message)));
        }
        self.left -= bytes;
        read
    }
}

/// Content that is being read from its start, and its digest so far.
pub(super) struct SourceReader {
    source: FileSource,
    /// Bytes that were read.
    pub(super) position: u64,
    hasher: Hasher,
}

/// Bytes hashed at a time.
const STEP: usize = 1 << 20;

impl SourceReader {
    pub(super) fn new(source: FileSource) -> Self {
        Self {
            source,
            position: 0,
            hasher: Hasher::default(),
        }
    }

    /// The next bytes, at most `length`. Empty at the end.
    pub(super) async fn next(&mut self, length: usize) -> io::Result<Bytes> {
        let bytes = match &mut self.source {
            FileSource::Memory(bytes) => {
                let start = usize::try_from(self.position).unwrap_or(usize::MAX).min(bytes.len());
                let end = start.saturating_add(length).min(bytes.len());
                let next = bytes.slice(start..end);
                self.hasher.update(&next);
                next
            }
            FileSource::File(local) => {
                let file = Arc::clone(&local.file);
                let position = self.position;
                let mut hasher = self.hasher.clone();
                // Hashed in the same thread: both keep it busy for a while.
                let reading = tokio::task::spawn_blocking(move || {
                    let bytes = read_at(&file, position, length)?;
                    hasher.update(&bytes);
                    Ok::<_, io::Error>((bytes, hasher))
                });
                let (bytes, hasher) = reading.await.map_err(io::Error::other)??;
                self.hasher = hasher;
                bytes
            }
            FileSource::Stream(stream) => {
                let mut bytes = BytesMut::with_capacity(length);
                while bytes.len() < length && stream.read_buf(&mut bytes).await? > 0 {}
                self.hasher.update(&bytes);
                bytes.freeze()
            }
        };
        self.position += bytes.len() as u64;
        Ok(bytes)
    }

    /// Starts again at the beginning. Only for content that can be read [again](FileSource::again).
    pub(super) fn restart(&mut self) {
        self.position = 0;
        self.hasher = Hasher::default();
    }

    /// Digest of the bytes that were read.
    pub(super) fn digest(&self) -> Digest {
        self.hasher.digest()
    }

    /// Reads up to a position without keeping the bytes. Returns whether the content is that long.
    pub(super) async fn skip_to(&mut self, position: u64) -> io::Result<bool> {
        while self.position < position {
            let left = usize::try_from(position - self.position).unwrap_or(usize::MAX);
            if self.next(left.min(STEP)).await?.is_empty() {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Reads until `length` bytes or the end of the file.
fn read_at(file: &File, position: u64, length: usize) -> io::Result<Bytes> {
    let mut bytes = vec![0; length];
    let mut filled = 0;
    while filled < length {
        match file.read_at(&mut bytes[filled..], position + filled as u64) {
            Ok(0) => break,
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes.into())
}
