use super::origin::RingOrigin;
use crate::OpenEscape;

/// State from which a ring can continue another one's output: its end position and the unfinished
/// lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Checkpoint {
    /// End of the finished lines.
    pub origin: RingOrigin,
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
    /// If it continues an overlong line: the escape sequence in which that was cut.
    pub cut: Option<OpenEscape>,
}

impl From<RingOrigin> for Checkpoint {
    fn from(origin: RingOrigin) -> Self {
        Self {
            origin,
            ..Self::default()
        }
    }
}
