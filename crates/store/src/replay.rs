//! Reads frames across segments, in pieces.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use super::frame::{Body, Frame, FrameLength, HEADER, Seal, measure, read};
use super::mark::ReplayMark;
use super::media::{Blob, Media, OpenMode, SegmentPart, read_all, read_into};
use sshjobs_job::JobId;

/// Reads a job's frames in order, from segment to segment. At the end it can be called again for
/// later frames.
pub(super) struct Replay {
    media: Arc<dyn Media>,
    job: JobId,
    segment: u64,
    seal: Seal,
    blob: Option<Arc<dyn Blob>>,
    /// Position of `buffer` in the segment.
    base: u64,
    buffer: Vec<u8>,
    /// Number of bytes in `buffer` that were read from the segment.
    filled: usize,
    /// Number of these bytes that belong to frames already returned.
    read: usize,
    /// Position of the last checkpoint that was returned, or of the first frame.
    checkpoint_at: u64,
    /// Bytes of damaged frames that were passed over.
    skipped: u64,
}

/// Bytes of the first read: mostly enough for a page after a mark.
const FIRST: usize = 96 << 10;
/// Maximum bytes of a later read, except for a longer frame.
const PIECE: usize = 256 << 10;

impl Replay {
    /// Starts at a frame.
    pub(super) fn new(media: Arc<dyn Media>, job: JobId, segment: u64, offset: u64) -> Self {
        let seal = Seal::new(&job, segment);
        Self {
            media,
            job,
            segment,
            seal,
            blob: None,
            base: offset,
            buffer: Vec::new(),
            filled: 0,
            read: 0,
            checkpoint_at: offset,
            skipped: 0,
        }
    }

    /// Continues at another frame.
    pub(super) fn go_to(&mut self, segment: u64, offset: u64) {
        if segment != self.segment {
            self.segment = segment;
            self.seal = Seal::new(&self.job, segment);
            self.blob = None;
        }
        self.base = offset;
        self.filled = 0;
        self.read = 0;
        self.checkpoint_at = offset;
    }

    /// Bytes of damaged frames that were passed over so far.
    pub(super) fn skipped(&self) -> u64 {
        self.skipped
    }

    /// Bytes of the current segment that no whole frame begins with.
    pub(super) fn unread(&self) -> io::Result<u64> {
        let Some(blob) = &self.blob else { return Ok(0) };
        let (_, position) = self.position();
        Ok(blob.length()?.saturating_sub(position))
    }

    /// Segment and position of the next frame.
    pub(super) fn position(&self) -> (u64, u64) {
        (self.segment, self.base + self.read as u64)
    }

    /// Reads the next frame. `None` if there is none yet.
    pub(super) fn step<T>(
        &mut self,
        take: impl FnOnce(Frame<'_>, (u64, u64)) -> T,
    ) -> io::Result<Option<T>> {
        let length = loop {
            let needed = match measure(&self.buffer[self.read..self.filled], self.seal) {
                FrameLength::Whole(length) => break length,
                FrameLength::Short(length) => Some(length),
                FrameLength::Torn => None,
            };
            if let Some(needed) = needed
                && self.fill(needed)?
            {
                continue;
            }
            if !self.go_back()? && !self.skip_damage()? && !self.turn_over()? {
                // The next writer overwrites an unfinished frame, so the next call reads it again.
                self.filled = self.read;
                return Ok(None);
            }
        };
        let position = self.position();
        let Some(frame) = read(&self.buffer[self.read..self.read + length]) else {
            // A kind of frame that only a later version knows: the replay can't continue.
            return Ok(None);
        };
        if matches!(frame.body, Body::Checkpoint { .. }) {
            (_, self.checkpoint_at) = position;
        }
        let taken = take(frame, position);
        self.read += length;
        Ok(Some(taken))
    }

    /// Reads until `needed` bytes are available. Returns false if they are not.
    fn fill(&mut self, needed: usize) -> io::Result<bool> {
        let blob = match &self.blob {
            Some(blob) => Arc::clone(blob),
            None => {
                match self.media.open(&self.job, SegmentPart::Frames(self.segment), OpenMode::Read)
                {
                    // The job has no output yet, or the segment was evicted.
                    Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
                    opened => Arc::clone(self.blob.insert(opened?)),
                }
            }
        };
        // Grows only if the last read filled the buffer, so a replay that waits at the end stays small.
        let was_filled = self.filled == self.buffer.len();
        self.buffer.copy_within(self.read..self.filled, 0);
        self.base += self.read as u64;
        self.filled -= self.read;
        self.read = 0;
        let size = if was_filled {
            2 * self.buffer.len()
        } else {
            self.buffer.len()
        };
        let wanted = needed.max(size.clamp(FIRST, PIECE));
        // Never shortened, so that its bytes are zeroed only once.
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        self.filled += read_into(
            &mut self.buffer[self.filled..],
            &*blob,
            self.base + self.filled as u64,
        )?;
        Ok(self.filled >= needed)
    }

    /// Continues at the next checkpoint of the index, if the frames before it are damaged. Only the index is trusted: a
    /// job could print bytes that look like a frame.
    fn skip_damage(&mut self) -> io::Result<bool> {
        let (segment, position) = self.position();
        if self.filled == self.read {
            // The end of the stored frames, and no damage.
            return Ok(false);
        }
        let index = self.media.open(&self.job, SegmentPart::Index(segment), OpenMode::Read);
        let Ok(index) = index.and_then(|index| read_all(&*index)) else {
            return Ok(false);
        };
        let marks = ReplayMark::read_all(segment, &index);
        let Some(next) = marks.iter().find(|mark| mark.offset > position) else {
            return Ok(false);
        };
        // The writer may have completed the frame since it was read.
        self.fill(self.filled - self.read + HEADER)?;
        if matches!(
            measure(&self.buffer[self.read..self.filled], self.seal),
            FrameLength::Whole(_)
        ) {
            return Ok(true);
        }
        // After a power failure, the index may have marks of frames that are lost.
        let is_there = self
            .blob
            .as_ref()
            .is_some_and(|blob| blob.length().is_ok_and(|length| next.offset < length));
        if !is_there {
            return Ok(false);
        }
        tracing::warn!(
            job = %self.job,
            segment,
            position,
            "{} bytes of stored output are damaged",
            next.offset - position
        );
        self.skipped += next.offset - position;
        self.base = next.offset;
        self.filled = 0;
        self.read = 0;
        self.checkpoint_at = next.offset;
        Ok(true)
    }

    /// Continues with the next segment, if one exists and this one has not grown meanwhile.
    fn turn_over(&mut self) -> io::Result<bool> {
        // First: once the next segment exists, this one grows no more.
        let next = match self.media.open(
            &self.job,
            SegmentPart::Frames(self.segment + 1),
            OpenMode::Read,
        ) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        // Frames may have been written here after the last read. If not, it returns false.
        self.fill(self.filled - self.read + HEADER)?;
        if matches!(
            measure(&self.buffer[..self.filled], self.seal),
            FrameLength::Whole(_)
        ) {
            return Ok(true);
        }
        self.skipped += self.unread()?;
        self.go_to(self.segment + 1, 0);
        self.blob = Some(next);
        Ok(true)
    }

    /// Goes back to a checkpoint that was written over frames already returned, if there is one. The
    /// writer does that after an append that failed halfway: its complete frames don't count.
    fn go_back(&mut self) -> io::Result<bool> {
        let Some(blob) = &self.blob else { return Ok(false) };
        let (_, position) = self.position();
        let is_shorter = blob.is_local() && blob.length()? < position;
        let is_overwritten = is_shorter || self.filled > self.read;
        if !is_overwritten || position <= self.checkpoint_at {
            return Ok(false);
        }
        let length = usize::try_from(position - self.checkpoint_at).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length + FIRST];
        let filled = read_into(&mut bytes, &**blob, self.checkpoint_at)?;
        let mut at = 0;
        while at < length
            && let FrameLength::Whole(frame) = measure(&bytes[at..filled], self.seal)
        {
            let is_checkpoint = read(&bytes[at..at + frame])
                .is_some_and(|frame| matches!(frame.body, Body::Checkpoint { .. }));
            if at > 0 && is_checkpoint {
                self.base = self.checkpoint_at + at as u64;
                self.filled = 0;
                self.read = 0;
                return Ok(true);
            }
            at += frame;
        }
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Body;
    use crate::buffers::Buffers;
    use sshjobs_output::{LineNo, OutputSource, RingOrigin, Stream};

    fn bytes_of(job: &JobId, bodies: Vec<Body<'_>>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for body in bodies {
            Frame { at: 0, body }.write_to(Seal::new(job, 1), &mut bytes);
        }
        bytes
    }

    fn checkpoint_after(line: u64) -> Body<'static> {
        let origin = RingOrigin {
            newest: LineNo::new(line),
            ..RingOrigin::default()
        };
        Body::Checkpoint {
            line_bytes: 100,
            checkpoint: Box::new(origin.into()),
        }
    }

    /// What each further step returns: the bytes of data, or the last line before a checkpoint.
    fn steps(replay: &mut Replay) -> Vec<String> {
        let mut texts = Vec::new();
        while let Some(text) = replay.step(|frame, _| describe(&frame.body)).unwrap() {
            texts.push(text);
        }
        texts
    }

    fn describe(body: &Body<'_>) -> String {
        match body {
            Body::Checkpoint { checkpoint, .. } => {
                format!("after {}", checkpoint.origin.newest.value())
            }
            Body::Data(_, bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Body::FinishStreams | Body::End(_) => "end".to_owned(),
        }
    }

    #[test]
    fn a_replay_goes_back_to_what_was_written_over_a_failed_append() {
        for after in ["later\n", &"a much later and longer line\n".repeat(20)] {
            let media = Arc::new(Buffers::default());
            let job = JobId::from("web1-000000");
            let stdout = OutputSource::from(Stream::Stdout);
            let blob = media.open(&job, SegmentPart::Frames(1), OpenMode::Write).unwrap();
            let stored = [checkpoint_after(0), Body::Data(stdout, b"one\n")];
            blob.append(&bytes_of(&job, stored.into())).unwrap();
            let length = blob.length().unwrap();
            let lost = [
                Body::Data(stdout, b"two, which does not count\n"),
                Body::Data(stdout, b"three\n"),
            ];
            blob.append(&bytes_of(&job, lost.into())).unwrap();
            let mut replay = Replay::new(media, job.clone(), 1, 0);
            assert_eq!(steps(&mut replay).len(), 4);

            blob.truncate(length).unwrap();
            assert!(steps(&mut replay).is_empty());
            let next = [checkpoint_after(3), Body::Data(stdout, after.as_bytes())];
            blob.append(&bytes_of(&job, next.into())).unwrap();

            assert_eq!(steps(&mut replay), ["after 3", after]);
        }
    }

    #[test]
    fn a_replay_that_waits_at_the_end_keeps_its_buffer_small() {
        let media = Arc::new(Buffers::default());
        let job = JobId::from("web1-000000");
        let mut bytes = Vec::new();
        let frame = Frame {
            at: 0,
            body: Body::FinishStreams,
        };
        frame.write_to(Seal::new(&job, 1), &mut bytes);
        let blob = media.open(&job, SegmentPart::Frames(1), OpenMode::Write).unwrap();
        blob.append(&bytes).unwrap();
        let mut replay = Replay::new(media, job, 1, 0);

        assert!(replay.step(|_, _| ()).unwrap().is_some());
        for _ in 0..10 {
            assert!(replay.step(|_, _| ()).unwrap().is_none());
        }

        assert_eq!(replay.buffer.len(), FIRST);
    }
}
