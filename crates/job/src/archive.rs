//! The interface to stored output, below the store itself.

use std::{fmt, io};

use bytes::Bytes;

use super::span::{LineRange, OutputSpan};
use sshjobs_output::{
    LineNo, Measure, OutputSource, Ring, RingOrigin, Selection, Stream, Timestamp,
};

/// The stored part of a job's output. Readers get evicted lines from it.
pub trait Archive: Send + Sync + fmt::Debug {
    /// A part of the output that starts a little before the span, as a ring that gives the same
    /// answers as the job's own. The part ends when `enough` returns true, or after some megabytes.
    /// `None` if nothing of the span is stored.
    ///
    /// Blocking: it reads files.
    fn window(&self, span: OutputSpan, enough: &dyn Fn(&Ring) -> bool) -> Option<Ring>;

    /// Skips stored pieces without a match, at most to the end of the range. The sieve gets the text
    /// of each piece that is stored exactly as it is shown (printable ASCII, no overlong line), unless
    /// its filter rules out a match; any other piece may have a match. `None` if
    /// the range has no whole piece. Blocking: it reads files.
    fn skim(
        &self,
        lines: LineRange,
        selection: Selection,
        sieve: &mut dyn LineSieve,
    ) -> Option<Skimmed>;

    /// Output as it arrived, from a place on; the start without one. At most about a megabyte. Blocking:
    /// it reads files.
    ///
    /// # Errors
    /// If the store can't be read.
    fn recording(&self, from: Option<RecordingPlace>) -> io::Result<StoredPieces>;

    /// The stored range of the output.
    fn coverage(&self) -> Coverage;

    /// Deletes the lines of the selected streams up to `last`. Blocking.
    fn forget(&self, selection: Selection, last: LineNo);

    /// Reads how much output any process has deleted: each stream up to a position. Blocking.
    ///
    /// # Errors
    /// If the store can't be read.
    fn read_deleted(&self) -> io::Result<RingOrigin>;
}

/// Finds the parts of output that a search must read line by line.
pub trait LineSieve {
    /// A position in the first line of a text that may match. `None` if no line matches. The text must be
    /// printable ASCII, tabs and line feeds.
    fn find_match(&mut self, text: &[u8]) -> Option<usize>;

    /// Whether a line of some output could match. `may_contain` returns whether that output may contain a text.
    fn can_match(&self, may_contain: &mut dyn FnMut(&[u8]) -> bool) -> bool;
}

/// A part of stored output, as it arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredPieces {
    /// The pieces, in order.
    pub pieces: Vec<RecordedPiece>,
    /// Where the next part begins. `None` if no more is stored yet.
    pub next: Option<RecordingPlace>,
}

/// Bytes that arrived at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedPiece {
    /// Their time.
    pub at: Timestamp,
    /// Their stream, and in a fleet their member.
    pub source: OutputSource,
    /// The bytes.
    pub bytes: Bytes,
    /// Number of bytes of their stream before them, including those that are not kept.
    pub position: u64,
}

/// A place in stored output. Only the store knows its meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordingPlace {
    /// The segment.
    pub segment: u64,
    /// The position in it.
    pub offset: u64,
    /// Bytes of stdout before it.
    pub stdout: u64,
    /// Bytes of stderr before it.
    pub stderr: u64,
}

/// Result of [`Archive::skim`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Skimmed {
    /// The last skipped line, or the line before the range if none was skipped.
    pub to: LineNo,
    /// Number of selected lines up to `to`; if `to` is inside a piece, perhaps only up to its start.
    pub lines: u64,
    /// Lines after `to` and up to this one may match, and must be searched line by line.
    pub match_until: Option<LineNo>,
}

/// The stored range of a job's output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    /// Its start: the last line before it, and for each stream the position after the evicted or
    /// deleted output.
    pub begin: RingOrigin,
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

#[cfg(test)]
mod tests {
    use super::*;
    use sshjobs_output::{Position, RingLimits};

    /// A hundred lines, of which the last fifty are kept.
    fn ring() -> Ring {
        let mut ring = Ring::new(RingLimits {
            lines: 50,
            ..RingLimits::default()
        });
        for _ in 0..100 {
            ring.append(Stream::Stdout, b"line\n", 0);
        }
        ring
    }

    /// Coverage after line `before`, up to line `last`, without gaps.
    fn covered(before: u64, last: u64) -> Coverage {
        let stdout = Position {
            last_line: LineNo::new(before),
            lines: before,
            bytes: 5 * before,
            ..Position::default()
        };
        Coverage {
            begin: RingOrigin {
                newest: LineNo::new(before),
                stdout,
                ..RingOrigin::default()
            },
            last: LineNo::new(last),
            ..Coverage::default()
        }
    }

    #[test]
    fn lines_that_neither_store_nor_ring_has_are_counted() {
        let stored = Coverage {
            gaps: vec![(LineNo::new(20), LineNo::new(25))],
            forgotten: 3,
            ..covered(10, 40)
        };
        let between = |after, last| {
            let lines = LineRange {
                after: LineNo::new(after),
                last: LineNo::new(last),
            };
            stored.missing_between(&ring(), lines)
        };
        assert_eq!(between(8, 10), 2);
        assert_eq!(between(10, 20), 0);
        assert_eq!(between(8, 23), 2 + 3);
        assert_eq!(between(30, 100), 10, "lines 41 to 50");
        assert_eq!(stored.dropped_lines(&ring()), 10 + 5 + 10 + 3);
    }

    #[test]
    fn the_oldest_line_is_that_of_the_store_or_of_the_ring() {
        let oldest = |stored: Coverage| {
            let bytes = stored.available_from(&ring(), Stream::Stdout, Measure::Bytes);
            (stored.first_available(&ring()).value(), bytes)
        };
        assert_eq!(oldest(covered(10, 40)), (11, 50));
        assert_eq!(oldest(covered(60, 90)), (51, 250));
        // The store has nothing.
        assert_eq!(oldest(covered(10, 10)), (51, 250));
        assert_eq!(oldest(covered(0, 0)), (51, 250));
    }
}
