//! Parts of a job's output that readers ask for.

use sshjobs_output::{LineNo, Measure, Ring, Selection};

/// The selected streams of a job's output, from a position on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutputSpan {
    /// Where it starts.
    pub start: SpanStart,
    /// The streams.
    pub selection: Selection,
}

/// The start of a [`OutputSpan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanStart {
    /// After a line.
    After(LineNo),
    /// After this amount of the selected streams.
    At(u64, Measure),
}

/// Lines after one line, up to and including another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineRange {
    /// The line before the first one.
    pub after: LineNo,
    /// The last line.
    pub last: LineNo,
}

impl OutputSpan {
    /// The selected streams after a line.
    pub fn after(line_no: LineNo, selection: Selection) -> Self {
        Self {
            start: SpanStart::After(line_no),
            selection,
        }
    }

    /// The selected streams after this amount of them.
    pub fn at(position: u64, measure: Measure, selection: Selection) -> Self {
        Self {
            start: SpanStart::At(position, measure),
            selection,
        }
    }

    /// Whether a ring has output after the start of the span, even if some in between is gone.
    pub fn is_followed_in(self, ring: &Ring) -> bool {
        let selection = self.selection;
        match self.start {
            SpanStart::After(line_no) => ring.lines_after(line_no, selection).next().is_some(),
            SpanStart::At(position, Measure::Bytes) => {
                // Bytes of one stream include its unfinished line, those of both do not.
                let end = match selection {
                    Selection::Both => ring.extent(ring.newest(), selection, Measure::Bytes),
                    Selection::Only(stream) => ring.total_bytes(stream),
                };
                end > position
            }
            SpanStart::At(position, measure) => {
                ring.extent(ring.newest(), selection, measure) > position
            }
        }
    }

    /// Whether a ring has evicted nothing after the start of the span.
    pub fn is_held_by(self, ring: &Ring) -> bool {
        let selection = self.selection;
        match self.start {
            SpanStart::After(line_no) => ring.dropped_after(line_no, selection).0 == 0,
            SpanStart::At(position, measure) => {
                ring.extent(ring.last_gone(selection), selection, measure) <= position
            }
        }
    }
}
