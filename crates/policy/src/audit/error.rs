//! Why a log can't be used.

use std::io;
use std::path::PathBuf;

/// Why a log can't be written or read.
#[derive(Debug, thiserror::Error)]
#[error("the audit log {} can't be used: {source}", file.display())]
pub struct AuditError {
    /// The log, or its key.
    pub file: PathBuf,
    /// The cause.
    pub source: io::Error,
}
