//! The index of a stored log.

use super::frame::{Fields, ORIGIN, write_origin};
use sshjobs_output::{LineNo, RingOrigin, Timestamp};

/// A position in a job's segments at which a replay can start: that of a checkpoint. A segment's
/// index is a list of marks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplayMark {
    /// The segment. Not written, because an index belongs to one segment.
    pub segment: u64,
    /// Position of the checkpoint's frame.
    pub offset: u64,
    /// Time of the checkpoint.
    pub(super) at: Timestamp,
    /// The last line stored before it. Smaller than `origin.newest` if output in between is
    /// missing.
    pub(super) before: LineNo,
    /// State of the log.
    pub(super) origin: RingOrigin,
}

/// Bytes of a mark: offset, time, line before, origin, CRC-32.
pub(super) const MARK: usize = 3 * 8 + ORIGIN + 4;

impl ReplayMark {
    /// The mark as it is in an index.
    pub fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MARK);
        for number in [self.offset, self.at, self.before.value()] {
            bytes.extend(number.to_le_bytes());
        }
        write_origin(&self.origin, &mut bytes);
        bytes.extend(crc32fast::hash(&bytes).to_le_bytes());
        bytes
    }

    /// Parses the index of a segment, up to the first torn mark.
    pub fn read_all(segment: u64, index: &[u8]) -> Vec<Self> {
        // A torn append misaligns the marks after it. Reads then start at an earlier mark.
        index.chunks_exact(MARK).map_while(|bytes| Self::read(segment, bytes)).collect()
    }

    fn read(segment: u64, bytes: &[u8]) -> Option<Self> {
        let (body, sum) = bytes.split_at_checked(MARK - 4)?;
        if Fields(sum).u32()? != crc32fast::hash(body) {
            return None;
        }
        let mut fields = Fields(body);
        let offset = fields.u64()?;
        let at = fields.u64()?;
        let before = LineNo::new(fields.u64()?);
        Some(Self {
            segment,
            offset,
            at,
            before,
            origin: fields.origin()?,
        })
    }

    /// The gap before it, if output is missing there: the last line before the gap, and the last in
    /// it.
    pub(super) fn gap(&self) -> Option<(LineNo, LineNo)> {
        (self.before < self.origin.newest).then_some((self.before, self.origin.newest))
    }
}

/// All marks of a job, in order, and the gaps between them.
#[derive(Debug, Default)]
pub(super) struct ReplayMarks {
    all: Vec<ReplayMark>,
    /// Gaps before all marks except the first, so that reads need not search for them.
    gaps: Vec<(LineNo, LineNo)>,
}

impl ReplayMarks {
    pub(super) fn new(all: Vec<ReplayMark>) -> Self {
        let gaps = all.iter().skip(1).filter_map(ReplayMark::gap).collect();
        Self { all, gaps }
    }

    pub(super) fn push(&mut self, mark: ReplayMark) {
        if !self.all.is_empty() {
            self.gaps.extend(mark.gap());
        }
        self.all.push(mark);
    }

    /// Keeps the marks of these segments.
    pub(super) fn keep(&mut self, is_kept: impl Fn(u64) -> bool) {
        if self.all.iter().any(|mark| !is_kept(mark.segment)) {
            self.all.retain(|mark| is_kept(mark.segment));
            // Computes the gaps again: the one before the new first mark does not count.
            *self = Self::new(std::mem::take(&mut self.all));
        }
    }

    /// Frees unused storage.
    pub(super) fn shrink(&mut self) {
        self.all.shrink_to_fit();
    }

    pub(super) fn gaps(&self) -> &[(LineNo, LineNo)] {
        &self.gaps
    }
}

impl std::ops::Deref for ReplayMarks {
    type Target = [ReplayMark];

    fn deref(&self) -> &[ReplayMark] {
        &self.all
    }
}
