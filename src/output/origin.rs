use super::LineNo;

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
