//! Steps through kept lines and counts the evicted ones in between.

use super::Line;
use crate::ring::Ring;
use crate::{LineNo, Render, Selection};

/// A line read from the ring, to be matched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// The line.
    pub line: Line,
    /// Number of evicted lines before it.
    pub(crate) gone: u64,
    /// Its cost in a budget of bytes.
    pub(crate) cost: usize,
}

/// A position in the kept lines, and the lines lost before it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Walk {
    pub(crate) selection: Selection,
    pub(crate) cursor: LineNo,
    pub(crate) dropped: u64,
}

/// Approximate bytes of output fetched at once.
const PIECE_BYTES: usize = 64 << 10;
/// Number of lines to allocate for at once.
const PIECE_LINES: usize = 1024;

impl Walk {
    pub(crate) fn new(cursor: LineNo, selection: Selection) -> Self {
        Self {
            selection,
            cursor,
            dropped: 0,
        }
    }

    /// The next lines, at most `most`. The position moves only when they are [passed](Self::pass).
    pub(crate) fn peek(self, ring: &Ring, most: usize, render: Render) -> Vec<Fetched> {
        let mut room = PIECE_BYTES;
        let mut before = self.cursor;
        let lines = ring.lines_after(self.cursor, self.selection).take(most);
        let piece = lines.take_while(|line| {
            // First, so that the first line is returned whatever its size.
            let has_room = room > 0;
            room = room.saturating_sub(line.text.len() + 1);
            has_room
        });
        // For one stream: all its evicted lines are before its first kept line.
        let mut first_gone = Some(ring.dropped_after(self.cursor, self.selection).0);
        let mut fetched = Vec::with_capacity(most.min(PIECE_LINES));
        fetched.extend(piece.map(|line| {
            let gone = match self.selection {
                Selection::Both => line.line_no.since(before.next()),
                Selection::Only(_) => first_gone.take().unwrap_or(0),
            };
            before = line.line_no;
            let rendered = Line::of(&line, render);
            let cost = rendered.cost(&line);
            Fetched {
                line: rendered,
                gone,
                cost,
            }
        }));
        fetched
    }

    pub(crate) fn pass(&mut self, fetched: &Fetched) {
        self.pass_line(fetched.line.line_no, fetched.gone);
    }

    pub(crate) fn pass_line(&mut self, line_no: LineNo, gone: u64) {
        self.dropped += gone;
        self.cursor = line_no;
    }

    /// Number of evicted lines between the position and `next`, which is the next kept line or the end of
    /// the range to read. For one stream it may include evicted lines of the other.
    pub(crate) fn gone_before(&self, ring: &Ring, next: LineNo) -> u64 {
        let between = next.since(self.cursor.next());
        match self.selection {
            Selection::Both => between,
            // Evicted lines of one stream are all before its kept lines.
            Selection::Only(_) => ring.dropped_after(self.cursor, self.selection).0.min(between),
        }
    }

    /// Moves past evicted lines at the end, when no kept line is left.
    pub(crate) fn pass_the_gone(&mut self, ring: &Ring) {
        let (gone, last) = match self.selection {
            // No kept line follows, so every number up to the newest is missing.
            Selection::Both => (ring.newest().since(self.cursor), ring.newest()),
            Selection::Only(_) => ring.dropped_after(self.cursor, self.selection),
        };
        if gone > 0 {
            self.dropped += gone;
            self.cursor = self.cursor.max(last);
        }
    }
}
