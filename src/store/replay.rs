use std::io::{self, ErrorKind};
use std::sync::Arc;

use super::frame::{Frame, HEADER, Measured, measure, read};
use super::media::{Access, Blob, Media, Part, read_into};
use crate::job::JobId;

/// Goes through a job's frames in order, from segment to segment; at the end it can be asked again for what has come since.
pub(super) struct Replay {
    media: Arc<dyn Media>,
    job: JobId,
    segment: u64,
    blob: Option<Arc<dyn Blob>>,
    /// Position of `buffer` in the segment.
    base: u64,
    buffer: Vec<u8>,
    /// What of the buffer has come from the segment.
    filled: usize,
    /// What of that is read.
    read: usize,
}

/// Bytes that are read first: what a page behind a mark needs, mostly.
const FIRST: usize = 96 << 10;
/// Bytes that are read at a time, later.
const PIECE: usize = 256 << 10;

impl Replay {
    /// From a frame on.
    pub(super) fn new(media: Arc<dyn Media>, job: JobId, (segment, offset): (u64, u64)) -> Self {
        Self { media, job, segment, blob: None, base: offset, buffer: Vec::new(), filled: 0, read: 0 }
    }

    /// Where the next frame is: its segment and the position in it.
    pub(super) fn position(&self) -> (u64, u64) {
        (self.segment, self.base + self.read as u64)
    }

    /// Takes the next frame; none when there is none yet.
    pub(super) fn step<T>(&mut self, take: impl FnOnce(Frame<'_>, (u64, u64)) -> T) -> io::Result<Option<T>> {
        let mut needed = HEADER;
        let length = loop {
            match measure(&self.buffer[self.read..self.filled]) {
                Measured::Short(length) => needed = length.max(needed),
                Measured::Torn => needed = 0,
                Measured::Whole(length) => break length,
            }
            if needed > 0 && self.fill(needed)? {
                continue;
            }
            if !self.turn_over()? {
                return Ok(None);
            }
            needed = HEADER;
        };
        let position = self.position();
        let Some(frame) = read(&self.buffer[self.read..self.read + length]) else { return Ok(None) };
        let taken = take(frame, position);
        self.read += length;
        Ok(Some(taken))
    }

    /// Reads on until `needed` bytes are there; false when they are not.
    fn fill(&mut self, needed: usize) -> io::Result<bool> {
        let blob = match &self.blob {
            Some(blob) => Arc::clone(blob),
            None => match self.media.open(&self.job, Part::Frames(self.segment), Access::Read) {
                Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
                opened => Arc::clone(self.blob.insert(opened?)),
            },
        };
        self.buffer.copy_within(self.read..self.filled, 0);
        self.base += self.read as u64;
        (self.filled, self.read) = (self.filled - self.read, 0);
        let wanted = needed.max((2 * self.buffer.len()).clamp(FIRST, PIECE));
        if self.buffer.len() < wanted {
            self.buffer.resize(wanted, 0);
        }
        self.filled += read_into(&mut self.buffer[self.filled..], &*blob, self.base + self.filled as u64)?;
        Ok(self.filled >= needed)
    }

    /// Goes on with the next segment, if there is one and nothing has come to this one meanwhile.
    fn turn_over(&mut self) -> io::Result<bool> {
        let next = match self.media.open(&self.job, Part::Frames(self.segment + 1), Access::Read) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
            opened => opened?,
        };
        self.fill(self.filled - self.read + HEADER)?;
        if matches!(measure(&self.buffer[..self.filled]), Measured::Whole(_)) {
            return Ok(true);
        }
        self.segment += 1;
        (self.blob, self.base, self.filled, self.read) = (Some(next), 0, 0, 0);
        Ok(true)
    }
}
