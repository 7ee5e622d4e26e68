use serde::{Deserialize, Serialize};

/// Size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Width in characters.
    pub cols: u32,
    /// Height in rows.
    pub rows: u32,
}

/// A change of a terminal's size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Resize {
    /// Its number, from 1, among the changes of the job's terminal.
    pub number: u64,
    /// Number of bytes that were printed on stdout before it.
    pub after: u64,
    /// The new size.
    pub size: TerminalSize,
}
