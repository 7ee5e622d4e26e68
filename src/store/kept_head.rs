//! A head of an audit log that a cluster keeps.

use std::time::SystemTime;

/// The hash of a line of an audit log, as a cluster keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptHead {
    /// Name of the log: that of its machine, a colon, and its path.
    pub log: String,
    /// `SEQ:HASH`.
    pub head: String,
    /// When it was kept.
    pub kept_at: SystemTime,
}
