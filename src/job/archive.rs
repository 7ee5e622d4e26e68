//! The interface to stored output, below the store itself.

use std::{fmt, io};

use super::span::{LineRange, Span};
use crate::output::{LineNo, Measure, Origin, Ring, Selection, Stream};

/// The stored part of a job's output. Readers get evicted lines from it.
pub trait Archive: Send + Sync + fmt::Debug {
    /// A part of the output that starts a little before the span, as a ring that gives the same
    /// answers as the job's own. The part ends when `enough` returns true, or after some megabytes.
    /// `None` if nothing of the span is stored.
    ///
    /// Blocking: it reads files.
    fn window(&self, span: Span, enough: &dyn Fn(&Ring) -> bool) -> Option<Ring>;

    /// Skips stored pieces without a match, at most to the end of the range. `has_no_match` gets
    /// the text of each piece that is stored exactly as it is shown (printable ASCII, no overlong
    /// line); any other piece may have a match. `None` if the range has no whole piece. Blocking:
    /// it reads files.
    fn skim(
        &self,
        lines: LineRange,
        selection: Selection,
        has_no_match: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Option<Skimmed>;

    /// The stored range of the output.
    fn coverage(&self) -> Coverage;

    /// Deletes the lines of the selected streams up to `last`. Blocking.
    fn forget(&self, selection: Selection, last: LineNo);

    /// Reads how much output any process has deleted: each stream up to a position. Blocking.
    ///
    /// # Errors
    /// If the store can't be read.
    fn read_deleted(&self) -> io::Result<Origin>;
}

/// Result of [`Archive::skim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skimmed {
    /// The last skipped line, or the line before the range if none was skipped.
    pub to: LineNo,
    /// Number of selected lines up to `to`. If no line was skipped, up to the start of the piece
    /// that has `to`.
    pub lines: u64,
    /// The last line of the next piece, if that may have a match and must be searched line by line.
    pub match_until: Option<LineNo>,
}

/// The stored range of a job's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Its start: the last line before it, and for each stream the position after the evicted or
    /// deleted output.
    pub begin: Origin,
    /// The last line stored.
    pub last: LineNo,
    /// Gaps in the range: the last line before each gap, and the last line in it.
    pub gaps: Vec<(LineNo, LineNo)>,
    /// Lines in the range that were deleted because of their stream.
    pub forgotten: u64,
}

impl Coverage {
    fn missing(&self, newest: LineNo) -> impl Iterator<Item = (LineNo, LineNo)> {
        let head = (LineNo::START, self.begin.newest);
        [head].into_iter().chain(self.gaps.iter().copied()).chain([(self.last, newest)])
    }

    /// Number of lines in a range that neither the store nor the ring has.
    pub fn missing_between(&self, ring: &Ring, lines: LineRange) -> u64 {
        // The ring answers for all lines from its first one on.
        let to = lines.last.min(ring.before_first());
        self.missing(ring.newest())
            .map(|(before, last)| last.min(to).since(before.max(lines.after)))
            .sum()
    }

    /// Number of lines that neither the store nor the ring has.
    pub fn dropped_lines(&self, ring: &Ring) -> u64 {
        let all = LineRange {
            after: LineNo::START,
            last: ring.newest(),
        };
        self.missing_between(ring, all) + self.forgotten
    }

    /// The oldest line that the store or the ring has, or the next line to come.
    pub fn first_available(&self, ring: &Ring) -> LineNo {
        if self.last > self.begin.newest {
            self.begin.newest.next().min(ring.first_available())
        } else {
            ring.first_available()
        }
    }

    /// Start position of the part of a stream that the store or the ring has.
    pub fn available_from(&self, ring: &Ring, stream: Stream, measure: Measure) -> u64 {
        let selection = Selection::Only(stream);
        let in_ring = ring.extent(ring.last_gone(selection), selection, measure);
        if self.last > self.begin.newest {
            self.begin.position(stream).extent(measure).min(in_ring)
        } else {
            in_ring
        }
    }
}
