/// Reason for the end of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LineEnd {
    Lf,
    CrLf,
    /// It was too long, and the rest follows as a continuation.
    Cut,
    StreamEnd,
}

impl LineEnd {
    /// Its bytes in the stream.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::Lf => "\n",
            Self::CrLf => "\r\n",
            Self::Cut | Self::StreamEnd => "",
        }
    }
}
