use std::time::Duration;

/// Result of a copy on one host, for the files for CI.
#[derive(Clone, Debug)]
pub(crate) struct HostResult {
    pub(crate) host: String,
    /// The verb and its paths.
    pub(crate) command: String,
    /// Milliseconds since the epoch.
    pub(crate) started_at: u64,
    pub(crate) took: Duration,
    pub(crate) bytes: u64,
    /// Why it failed.
    pub(crate) failure: Option<String>,
}
