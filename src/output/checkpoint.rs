use super::{Escape, Origin};

/// Everything that a ring must know to go on with another one's output: where it begins, and the unfinished lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// Where the finished lines end.
    pub origin: Origin,
    /// The unfinished line of standard output.
    pub stdout: Unfinished,
    /// The unfinished line of standard error.
    pub stderr: Unfinished,
}

/// The unfinished last line of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unfinished {
    /// Its bytes so far.
    pub bytes: Vec<u8>,
    /// When it continues an overlong line: the escape sequence that the cut went through.
    pub cut: Option<Escape>,
}

impl From<Origin> for Checkpoint {
    fn from(origin: Origin) -> Self {
        Self { origin, ..Self::default() }
    }
}
