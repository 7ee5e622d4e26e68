//! Storage that fails when a test wants it to.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use super::media::{Blob, Media, OpenMode, SegmentPart};
use sshjobs_base::lock::lock;
use sshjobs_job::JobId;

/// Makes the next append to any file of a [`Memory`](super::Memory) fail.
#[derive(Default)]
pub struct DiskFault {
    /// Bytes that the next append writes before it fails.
    armed: Mutex<Option<usize>>,
    has_failed: AtomicBool,
    /// Whether each append fails.
    is_full: AtomicBool,
}

impl DiskFault {
    /// The next append writes this many bytes, and then fails because the disk is full.
    pub fn fail_next_append_after(&self, bytes: usize) {
        *lock(&self.armed) = Some(bytes);
    }

    /// Each append fails from now on, or none does.
    pub fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Relaxed);
    }

    /// Whether an append has failed.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Relaxed)
    }

    fn take(&self) -> Option<usize> {
        let armed = lock(&self.armed).take().or_else(|| self.is_full.load(Relaxed).then_some(0));
        self.has_failed.fetch_or(armed.is_some(), Relaxed);
        armed
    }
}

/// Storage whose appends can fail.
pub(super) struct FaultyMedia<M> {
    pub(super) media: M,
    pub(super) fault: Arc<DiskFault>,
}

impl<M: Media> Media for FaultyMedia<M> {
    fn segments(&self, job: &JobId) -> io::Result<Vec<u64>> {
        self.media.segments(job)
    }

    fn open(&self, job: &JobId, part: SegmentPart, access: OpenMode) -> io::Result<Arc<dyn Blob>> {
        Ok(Arc::new(FaultyBlob {
            blob: self.media.open(job, part, access)?,
            fault: Arc::clone(&self.fault),
        }))
    }

    fn remove(&self, job: &JobId, segment: u64) -> io::Result<()> {
        self.media.remove(job, segment)
    }

    fn remove_all(&self, job: &JobId) -> io::Result<()> {
        self.media.remove_all(job)
    }
}

struct FaultyBlob {
    blob: Arc<dyn Blob>,
    fault: Arc<DiskFault>,
}

impl Blob for FaultyBlob {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let Some(written) = self.fault.take() else { return self.blob.append(bytes) };
        self.blob.append(&bytes[..written.min(bytes.len())])?;
        Err(io::ErrorKind::StorageFull.into())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        self.blob.truncate(length)
    }

    fn length(&self) -> io::Result<u64> {
        self.blob.length()
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        self.blob.read_at(buffer, position)
    }

    fn sync(&self) -> io::Result<()> {
        self.blob.sync()
    }
}
