//! GPUs that a queued job waits for.

use std::fmt;

/// GPUs that a queued job waits for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MissingGpus {
    /// How many it needs.
    pub(crate) needed: usize,
    /// How many there are that fit.
    pub(crate) fitting: Option<usize>,
    /// The host.
    pub(crate) host: String,
}

impl fmt::Display for MissingGpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { needed, host, .. } = self;
        match self.fitting {
            Some(fitting) => write!(f, "needs {needed} of {fitting} GPUs on {host}"),
            None => write!(f, "needs {needed} GPUs on {host}"),
        }
    }
}
