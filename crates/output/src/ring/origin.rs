//! Positions in a job's output from which a ring can continue, in every unit.

use crate::{LineNo, Measure, Render, Selection, Stream};

/// Start position of a ring that continues another one's numbers: after the last finished line of
/// each stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingOrigin {
    /// The newest line so far.
    pub newest: LineNo,
    /// Position on standard output.
    pub stdout: Position,
    /// Position on standard error.
    pub stderr: Position,
}

/// A position in a stream, in each unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// Number of its last line.
    pub last_line: LineNo,
    /// Number of its lines.
    pub lines: u64,
    /// Bytes of its lines, including line ends.
    pub bytes: u64,
    /// Characters of its lines as raw text.
    pub raw_chars: u64,
    /// Characters of its lines in the clean view.
    pub clean_chars: u64,
}

impl RingOrigin {
    /// The position in a stream.
    pub fn position(&self, stream: Stream) -> &Position {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }

    /// Amount of the selected output up to here.
    pub fn extent(&self, selection: Selection, measure: Measure) -> u64 {
        let wanted = Stream::ALL.into_iter().filter(|&stream| selection.contains(stream));
        wanted.map(|stream| self.position(stream).extent(measure)).sum()
    }

    /// Mutable position in a stream.
    pub fn position_mut(&mut self, stream: Stream) -> &mut Position {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

impl Position {
    /// The position in a unit.
    pub fn extent(&self, measure: Measure) -> u64 {
        match measure {
            Measure::Lines => self.lines,
            Measure::Bytes => self.bytes,
            Measure::Chars(Render::Raw) => self.raw_chars,
            Measure::Chars(Render::Clean) => self.clean_chars,
        }
    }
}
