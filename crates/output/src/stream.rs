/// One of the two output streams of a remote command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stream {
    /// Channel data (RFC 4254 §5.2).
    Stdout,
    /// Extended data of type `SSH_EXTENDED_DATA_STDERR` (RFC 4254 §5.2).
    Stderr,
}

impl Stream {
    /// Both streams, stdout first.
    pub const ALL: [Self; 2] = [Self::Stdout, Self::Stderr];
}

/// Streams of a read. Line numbers do not depend on it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Selection {
    /// Both streams, merged by line number.
    #[default]
    Both,
    /// Only this one.
    Only(Stream),
}

impl Selection {
    /// Whether `stream` is selected.
    pub fn contains(self, stream: Stream) -> bool {
        match self {
            Self::Both => true,
            Self::Only(only) => only == stream,
        }
    }
}
