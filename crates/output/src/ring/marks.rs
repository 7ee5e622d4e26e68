//! Where the kept lines of a stream end, and the ring's data about each. Consecutive lines that differ
//! only in number and end share one entry, a `Run`, so that a usual line takes eight bytes.

use std::collections::VecDeque;

use super::line_end::LineEnd;
use crate::{LineNo, MemberNo, OpenEscape, Timestamp};

/// Properties shared by the lines of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LineKind {
    pub(super) at: Timestamp,
    pub(super) ending: LineEnd,
    pub(super) continuation: bool,
    pub(super) escape: OpenEscape,
    pub(super) member: Option<MemberNo>,
}

/// End of a line in its stream, with the ring's data about it.
#[derive(Clone, Copy, Debug)]
pub(super) struct RingMark {
    pub(super) line_no: LineNo,
    /// Position in the stream after the line and its terminator.
    pub(super) end: u64,
    pub(super) kind: LineKind,
}

/// Lines of one kind with consecutive numbers.
#[derive(Clone, Copy, Debug)]
struct Run {
    /// Number of its first line.
    first: LineNo,
    /// Number of the stream's lines before it, evicted ones included.
    before: u64,
    kind: LineKind,
}

/// The marks of a stream's kept lines, and the number of those that were evicted.
#[derive(Debug, Default)]
pub(super) struct RingMarks {
    /// Position after each kept line.
    ends: VecDeque<u64>,
    /// The first run has the oldest kept line. Empty if no line is kept.
    runs: VecDeque<Run>,
    /// Number of evicted lines.
    gone: u64,
    /// The last evicted line.
    last_gone: LineNo,
}

impl RingMarks {
    /// Marks of a stream of which this many lines were evicted, the last of them with this number.
    pub(super) fn resumed(gone: u64, last_gone: LineNo) -> Self {
        Self {
            gone,
            last_gone,
            ..Self::default()
        }
    }

    pub(super) fn push(&mut self, mark: RingMark) {
        self.note_kind(mark.line_no, self.total(), mark.kind);
        self.ends.push_back(mark.end);
    }

    /// Adds lines with consecutive numbers, of one kind.
    pub(super) fn push_all(
        &mut self,
        first: LineNo,
        ends: impl Iterator<Item = u64>,
        kind: LineKind,
    ) {
        let count = self.ends.len();
        self.ends.extend(ends);
        if self.ends.len() > count {
            self.note_kind(first, self.gone + count as u64, kind);
        }
    }

    /// Notes the kind of the line that follows the first `before` lines: begins a run with it, unless it
    /// continues the last one.
    fn note_kind(&mut self, line_no: LineNo, before: u64, kind: LineKind) {
        let continues = self.runs.back().is_some_and(|run| {
            run.kind == kind && run.first.value() + (before - run.before) == line_no.value()
        });
        if !continues {
            self.runs.push_back(Run {
                first: line_no,
                before,
                kind,
            });
        }
    }

    /// Number of the stream's lines, evicted ones included.
    pub(super) fn total(&self) -> u64 {
        self.gone + self.ends.len() as u64
    }

    /// Number of evicted lines, and the last of them.
    pub(super) fn gone(&self) -> (u64, LineNo) {
        (self.gone, self.last_gone)
    }

    /// Number of kept lines.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(super) fn oldest(&self) -> Option<LineNo> {
        self.runs.front().map(|run| run.line_no(self.gone))
    }

    /// The newest line, kept or not.
    pub(super) fn newest(&self) -> LineNo {
        self.runs.back().map_or(self.last_gone, |run| run.line_no(self.total() - 1))
    }

    /// Position after a kept line.
    pub(super) fn end(&self, index: usize) -> u64 {
        self.ends[index]
    }

    /// Number of kept lines up to a number. A binary search.
    pub(super) fn count_until(&self, line_no: LineNo) -> usize {
        let begun = self.runs.partition_point(|run| run.first <= line_no);
        let Some(index) = begun.checked_sub(1) else { return 0 };
        let run = self.runs[index];
        let next = self.runs.get(begun).map_or(self.total(), |next| next.before);
        let until = next.min(run.before + line_no.since(run.first) + 1);
        usize::try_from(until.saturating_sub(self.gone)).expect("kept lines fit into memory")
    }

    /// The marks of the kept lines from an index on.
    pub(super) fn iter_from(&self, index: usize) -> impl Iterator<Item = RingMark> {
        let before = self.gone + index as u64;
        let mut next_run = self.runs.partition_point(|run| run.before <= before);
        (before..).zip(self.ends.range(index..)).map(move |(before, &end)| {
            // A run has at least one line, so that no more than one begins here.
            if self.runs.get(next_run).is_some_and(|run| run.before <= before) {
                next_run += 1;
            }
            let run = self.runs[next_run - 1];
            RingMark {
                line_no: run.line_no(before),
                end,
                kind: run.kind,
            }
        })
    }

    /// Evicts the oldest lines until all bytes before `position` are evicted, but none from the line
    /// `until` on. Returns their number and the position after the last of them.
    pub(super) fn evict_bytes(&mut self, position: u64, until: LineNo) -> (usize, Option<u64>) {
        let count = self.ends.partition_point(|&end| end < position) + 1;
        self.evict_lines(count, until)
    }

    /// Evicts up to `count` of the oldest lines, but none from the line `until` on. Returns their number and the position
    /// after the last of them.
    pub(super) fn evict_lines(&mut self, count: usize, until: LineNo) -> (usize, Option<u64>) {
        // Without a search in the usual case, in which all lines may go.
        let evictable = if self.newest() < until {
            self.len()
        } else {
            self.count_until(LineNo::new(until.value() - 1))
        };
        let count = count.min(evictable);
        let Some(last) = count.checked_sub(1) else {
            return (0, None);
        };
        let end = self.ends[last];
        self.ends.drain(..count);
        self.gone += count as u64;
        // First up to the run of the last evicted line, which has its number.
        while self.runs.get(1).is_some_and(|next| next.before < self.gone) {
            self.runs.pop_front();
        }
        let run = self.runs.front().expect("a line has a run");
        self.last_gone = run.line_no(self.gone - 1);
        // Then that run, too, if none of its lines is kept.
        while self.runs.get(1).is_some_and(|next| next.before <= self.gone) {
            self.runs.pop_front();
        }
        if self.ends.is_empty() {
            self.runs.clear();
        }
        (count, Some(end))
    }

    /// Allocated bytes, used or not.
    pub(super) fn footprint(&self) -> usize {
        self.ends.capacity() * size_of::<u64>() + self.runs.capacity() * size_of::<Run>()
    }

    /// Frees unused storage.
    pub(super) fn shrink(&mut self) {
        self.ends.shrink_to_fit();
        self.runs.shrink_to_fit();
    }
}

impl Run {
    /// Number of the line that follows the first `before` lines of the stream.
    fn line_no(&self, before: u64) -> LineNo {
        LineNo::new(self.first.value() + (before - self.before))
    }
}
