//! Checkpoints of audit logs that a cluster keeps.

use std::time::SystemTime;

/// A line of an audit log and its hash, which a cluster keeps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptHead {
    /// Name of the log: `MACHINE:PATH`.
    pub log: String,
    /// `SEQ:HASH`.
    pub head: String,
    /// When it was kept.
    pub kept_at: SystemTime,
}
