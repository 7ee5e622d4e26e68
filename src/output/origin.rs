use super::{LineNo, Render, Selection, Stream, Unit};

/// Where a ring begins that goes on with another one's numbers: behind the last finished line of each stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The newest line so far.
    pub newest: LineNo,
    /// On standard output.
    pub stdout: Position,
    /// On standard error.
    pub stderr: Position,
}

/// A position in a stream, in each unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    /// The number of its last line.
    pub last_line: LineNo,
    /// Its lines.
    pub lines: u64,
    /// Their bytes, line ends included.
    pub bytes: u64,
    /// Their characters as they came.
    pub raw_chars: u64,
    /// Their characters in the clean view.
    pub clean_chars: u64,
}

impl Origin {
    /// The position in a stream.
    pub fn position(&self, stream: Stream) -> &Position {
        match stream {
            Stream::Stdout => &self.stdout,
            Stream::Stderr => &self.stderr,
        }
    }

    /// Extent of the selected output up to here.
    pub fn extent(&self, selection: Selection, unit: (Unit, Render)) -> u64 {
        let wanted = Stream::ALL.into_iter().filter(|&stream| selection.contains(stream));
        wanted.map(|stream| self.position(stream).extent(unit)).sum()
    }

    /// The position in a stream, to be moved.
    pub fn position_mut(&mut self, stream: Stream) -> &mut Position {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }
}

impl Position {
    /// The position in a unit.
    pub fn extent(&self, (unit, render): (Unit, Render)) -> u64 {
        match (unit, render) {
            (Unit::Lines, _) => self.lines,
            (Unit::Bytes, _) => self.bytes,
            (Unit::Chars, Render::Raw) => self.raw_chars,
            (Unit::Chars, Render::Clean) => self.clean_chars,
        }
    }
}
