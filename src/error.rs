//! Errors of the library.

use std::fmt;

use sshjobs_core::jobs as core_jobs;
use sshjobs_core::jobs::ErrorKind;

/// Why a call failed. [`kind`](Self::kind) is for programs, and
/// [`source`](std::error::Error::source) has the cause. A command that exits with an error is not an
/// `Error`.
#[derive(Clone)]
pub struct Error {
    core: core_jobs::Error,
}

impl Error {
    /// Its kind.
    pub fn kind(&self) -> ErrorKind {
        self.core.kind()
    }
}

impl From<core_jobs::Error> for Error {
    fn from(core: core_jobs::Error) -> Self {
        Self { core }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.core.fmt(f)
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.core.source()
    }
}
