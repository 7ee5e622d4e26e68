//! Segments in memory.

use std::collections::BTreeMap;
use std::io::{self, ErrorKind};
use std::sync::{Arc, Mutex};

use super::media::{Blob, Media, OpenMode, SegmentPart};
use sshjobs_base::lock::lock;
use sshjobs_job::JobId;

/// Segments in memory, dropped with the process.
#[derive(Default)]
pub(super) struct Buffers(Mutex<BTreeMap<(JobId, SegmentPart), Arc<Buffer>>>);

#[derive(Default)]
struct Buffer(Mutex<Vec<u8>>);

impl Media for Buffers {
    fn segments(&self, job: &JobId) -> io::Result<Vec<u64>> {
        Ok(lock(&self.0)
            // The map is sorted, so the segments come in ascending order.
            .keys()
            .filter_map(|(of, part): &(JobId, SegmentPart)| match part {
                SegmentPart::Frames(segment) if of == job => Some(*segment),
                SegmentPart::Frames(_)
                | SegmentPart::Index(_)
                | SegmentPart::Filters(_)
                | SegmentPart::Forgotten => None,
            })
            .collect())
    }

    fn open(&self, job: &JobId, part: SegmentPart, access: OpenMode) -> io::Result<Arc<dyn Blob>> {
        let mut buffers = lock(&self.0);
        let key = (job.clone(), part);
        if access == OpenMode::Read && !buffers.contains_key(&key) {
            return Err(ErrorKind::NotFound.into());
        }
        let buffer: Arc<Buffer> = Arc::clone(buffers.entry(key).or_default());
        Ok(buffer)
    }

    fn remove(&self, job: &JobId, segment: u64) -> io::Result<()> {
        for part in SegmentPart::of_segment(segment) {
            lock(&self.0).remove(&(job.clone(), part));
        }
        Ok(())
    }

    fn remove_all(&self, job: &JobId) -> io::Result<()> {
        lock(&self.0).retain(|(of, _), _| of != job);
        Ok(())
    }
}

impl Blob for Buffer {
    fn append(&self, bytes: &[u8]) -> io::Result<()> {
        lock(&self.0).extend_from_slice(bytes);
        Ok(())
    }

    fn truncate(&self, length: u64) -> io::Result<()> {
        lock(&self.0).truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(())
    }

    fn length(&self) -> io::Result<u64> {
        Ok(lock(&self.0).len() as u64)
    }

    fn read_at(&self, buffer: &mut [u8], position: u64) -> io::Result<usize> {
        let bytes = lock(&self.0);
        let from = usize::try_from(position).unwrap_or(usize::MAX).min(bytes.len());
        let length = buffer.len().min(bytes.len() - from);
        buffer[..length].copy_from_slice(&bytes[from..from + length]);
        Ok(length)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }
}
