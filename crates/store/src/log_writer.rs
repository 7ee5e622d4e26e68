//! Appends to stored logs: segments, checkpoints, quotas.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use super::StoredEnd;
use super::frame::{Body, Frame, Seal};
use super::mark::ReplayMark;
use super::media::{Blob, OpenMode, SegmentPart};
use super::stored_log::StoredLog;
use sshjobs_base::lock::lock;
use sshjobs_job::{Batch, LogEvent};
use sshjobs_output::{Checkpoint, LineNo};

/// Appends to a job's stored log. One exists for each job, in the process that owns it.
pub struct SegmentWriter {
    log: Arc<StoredLog>,
    limits: LogLimits,
    blob: Option<Arc<dyn Blob>>,
    segment: u64,
    /// Bytes of complete frames in the segment.
    length: u64,
    /// The file may have torn bytes after `length`. The next write cuts them off first.
    is_torn: bool,
    /// Bytes since the last checkpoint.
    since_mark: u64,
    /// Bytes between checkpoints. Grows with the size of checkpoints.
    interval: u64,
    /// Number and size of each previous segment that is kept, oldest first.
    before: VecDeque<(u64, u64)>,
    /// The segment's first mark while the segment has no index.
    unindexed: Option<ReplayMark>,
    buffer: Vec<u8>,
    /// The index of this segment could not be written, so it gets no further marks.
    has_index_failed: bool,
    /// Whether data was written to `blob` since its last sync.
    unsynced: bool,
    /// Files that were closed before their data was synced.
    closed_unsynced: Vec<Arc<dyn Blob>>,
    /// Segments that are complete, until they are taken.
    complete: Vec<CompleteSegment>,
}

/// A segment that gets no more output.
pub struct CompleteSegment {
    pub(super) log: Arc<StoredLog>,
    pub(super) segment: u64,
}

/// Written data that may not be on disk yet.
pub struct Unsynced(Vec<Arc<dyn Blob>>);

impl Unsynced {
    /// Waits until the data is on disk. Blocking.
    pub fn sync(&self) -> io::Result<()> {
        self.0.iter().try_for_each(|blob| blob.sync())
    }
}

/// Limits of a stored log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogLimits {
    /// Bytes kept for a job.
    pub bytes: u64,
    /// Longest line, which determines where lines are cut.
    pub line_bytes: usize,
    /// Approximate bytes between two positions at which a replay can start.
    pub interval: u64,
}

/// Number of segments into which a job's bytes are divided: the oldest is deleted as a whole.
const SEGMENTS: u64 = 16;
const SMALLEST_SEGMENT: u64 = 1 << 20;
const LARGEST_SEGMENT: u64 = 64 << 20;

impl SegmentWriter {
    /// Starts the log of a new job.
    pub fn new(log: Arc<StoredLog>, limits: LogLimits) -> Self {
        Self {
            log,
            limits,
            blob: None,
            segment: 1,
            length: 0,
            is_torn: false,
            since_mark: 0,
            // So that the first batch gets a checkpoint.
            interval: 0,
            before: VecDeque::new(),
            unindexed: None,
            buffer: Vec::new(),
            has_index_failed: false,
            unsynced: false,
            closed_unsynced: Vec::new(),
            complete: Vec::new(),
        }
    }

    /// Continues a log left by another process. Cuts off a torn end.
    pub fn resume(log: Arc<StoredLog>, limits: LogLimits, end: &StoredEnd) -> io::Result<Self> {
        let (segment, length) = end.replay.position();
        let mut before = VecDeque::new();
        for older in log.media.segments(&log.job)?.into_iter().filter(|number| *number < segment) {
            let bytes =
                log.media.open(&log.job, SegmentPart::Frames(older), OpenMode::Read)?.length()?;
            before.push_back((older, bytes));
        }
        let first = lock(&log.state).marks.iter().find(|mark| mark.segment == segment).copied();
        // An index is created with the segment's first two marks.
        let has_index =
            log.media.open(&log.job, SegmentPart::Index(segment), OpenMode::Read).is_ok();
        let unindexed = if has_index { None } else { first };
        Ok(Self {
            segment,
            length,
            // The other process may have been killed in the middle of a write.
            is_torn: true,
            before,
            unindexed,
            ..Self::new(log, limits)
        })
    }

    /// Whether the next batch should come with a checkpoint.
    pub fn wants_checkpoint(&self) -> bool {
        self.since_mark >= self.interval || self.length >= self.segment_bytes()
    }

    /// Writes a batch to the operating system. After an error none of it counts as stored.
    pub fn append(&mut self, batch: &Batch) -> io::Result<()> {
        let at = batch.events.first().map_or(0, |(_, at, _)| *at);
        self.buffer.clear();
        if let Some(checkpoint) = &batch.checkpoint {
            if self.length >= self.segment_bytes() {
                // Only with a checkpoint, because a replay must be able to start at every segment.
                self.begin_segment()?;
            }
            let line_bytes = self.limits.line_bytes as u64;
            let body = Body::Checkpoint {
                line_bytes,
                checkpoint: Box::new(checkpoint.clone()),
            };
            Frame { at, body }.write_to(self.seal(), &mut self.buffer);
        }
        // After `begin_segment`: the seal depends on the segment.
        let seal = self.seal();
        let mut has_end = false;
        for (event, at, _) in &batch.events {
            let outcome;
            let body = match event {
                LogEvent::Append(source, bytes) => Body::Data(*source, bytes),
                LogEvent::FinishStreams => Body::FinishStreams,
                LogEvent::Gap(checkpoint) => {
                    let line_bytes = self.limits.line_bytes as u64;
                    Body::Checkpoint {
                        line_bytes,
                        checkpoint: checkpoint.clone(),
                    }
                }
                LogEvent::End(how) => {
                    has_end = true;
                    outcome = serde_json::to_vec(how)?;
                    Body::End(&outcome)
                }
            };
            Frame { at: *at, body }.write_to(seal, &mut self.buffer);
        }
        self.write()?;
        if let Some(checkpoint) = &batch.checkpoint {
            // Before `length` grows: the checkpoint is the first frame of this batch.
            self.note_mark(checkpoint, at);
        }
        let written = self.buffer.len() as u64;
        self.length += written;
        self.since_mark += written;
        if has_end {
            self.note_complete();
            // No mark follows.
            lock(&self.log.state).marks.shrink();
        }
        Ok(())
    }

    /// Notes the last stored line, once its batch is shown.
    pub fn note_newest(&self, newest: LineNo) {
        lock(&self.log.state).newest = newest;
    }

    /// Written data that may not be on disk yet, if any.
    pub fn take_unsynced(&mut self) -> Option<Unsynced> {
        let mut blobs = std::mem::take(&mut self.closed_unsynced);
        if std::mem::take(&mut self.unsynced) {
            blobs.extend(self.blob.clone());
        }
        (!blobs.is_empty()).then_some(Unsynced(blobs))
    }

    /// Large segments that were completed and not taken yet.
    pub fn take_complete(&mut self) -> Vec<CompleteSegment> {
        std::mem::take(&mut self.complete)
    }

    /// Notes that this segment gets no more output, if it is large.
    fn note_complete(&mut self) {
        // To read a smaller one costs little.
        if self.length >= SMALLEST_SEGMENT {
            self.complete.push(CompleteSegment {
                log: Arc::clone(&self.log),
                segment: self.segment,
            });
        }
    }

    /// Closes the file. It is opened again when needed.
    pub fn close_file(&mut self) {
        let closed = self.blob.take();
        if std::mem::take(&mut self.unsynced) {
            self.closed_unsynced.extend(closed);
        }
    }

    fn seal(&self) -> Seal {
        Seal::new(&self.log.job, self.segment)
    }

    fn write(&mut self) -> io::Result<()> {
        let blob = match &self.blob {
            Some(blob) => Arc::clone(blob),
            None => {
                let part = SegmentPart::Frames(self.segment);
                Arc::clone(self.blob.insert(self.log.media.open(
                    &self.log.job,
                    part,
                    OpenMode::Write,
                )?))
            }
        };
        if self.is_torn {
            // No replay gets past a torn frame within a segment.
            blob.truncate(self.length)?;
        }
        // Set first, because an append that fails may have written a part.
        self.is_torn = true;
        blob.append(&self.buffer)?;
        self.is_torn = false;
        self.unsynced = true;
        Ok(())
    }

    /// Records the checkpoint as a position at which a replay can start.
    fn note_mark(&mut self, checkpoint: &Checkpoint, at: u64) {
        let origin = checkpoint.origin;
        let unfinished = checkpoint.stdout.bytes.len() + checkpoint.stderr.bytes.len();
        self.since_mark = 0;
        // Checkpoints repeat the unfinished lines. They use at most about a quarter of the log.
        self.interval = self.limits.interval.max(4 * unfinished as u64);
        let mark = {
            let mut state = lock(&self.log.state);
            let before = if state.marks.is_empty() {
                // Output before the first mark counts as evicted, not as a gap.
                origin.newest
            } else {
                // Smaller than the origin's if output was shown without being stored.
                state.newest.min(origin.newest)
            };
            let mark = ReplayMark {
                segment: self.segment,
                offset: self.length,
                at,
                before,
                origin,
            };
            state.marks.push(mark);
            mark
        };
        let first = self.unindexed.take();
        if mark.offset == 0 {
            // A segment with one mark needs no index.
            self.unindexed = Some(mark);
            return;
        }
        if self.has_index_failed {
            return;
        }
        let bytes: Vec<u8> =
            first.into_iter().chain([mark]).flat_map(ReplayMark::to_bytes).collect();
        let index = self.log.media.open(
            &self.log.job,
            SegmentPart::Index(self.segment),
            OpenMode::Write,
        );
        // Without an index, the segment is scanned when it is opened.
        if let Err(error) = index.and_then(|index| index.append(&bytes)) {
            tracing::debug!(job = %self.log.job, %error, "the index could not be written");
            // An index that lacks a mark before its last one would hide a part of the segment.
            self.has_index_failed = true;
        }
    }

    fn segment_bytes(&self) -> u64 {
        (self.limits.bytes / SEGMENTS).clamp(SMALLEST_SEGMENT, LARGEST_SEGMENT)
    }

    fn begin_segment(&mut self) -> io::Result<()> {
        self.before.push_back((self.segment, self.length));
        self.note_complete();
        // Hands the file to `take_unsynced` if its last writes are not synced.
        self.close_file();
        self.segment += 1;
        self.has_index_failed = false;
        self.length = 0;
        let mut kept: u64 = self.before.iter().map(|(_, bytes)| bytes).sum();
        // Makes room for a full segment now, so that the limit holds until the next one begins.
        while kept + self.segment_bytes() > self.limits.bytes
            && let Some((oldest, bytes)) = self.before.pop_front()
        {
            // A reader may still use its marks. `StoredLog::window` then drops them and retries.
            self.log.media.remove(&self.log.job, oldest)?;
            lock(&self.log.state).marks.keep(|segment| segment != oldest);
            kept -= bytes;
        }
        Ok(())
    }

    /// Bytes used by the job.
    pub fn bytes(&self) -> u64 {
        self.length + self.before.iter().map(|(_, bytes)| bytes).sum::<u64>()
    }
}
