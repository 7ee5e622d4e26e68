//! A forward as it is seen.

use std::fmt;
use std::time::SystemTime;

use super::spec::ForwardSpec;

/// Name of a forward, such as `f3a9c1`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForwardId(String);

impl ForwardId {
    pub(super) fn random() -> Self {
        Self(format!("f{:06x}", rand::random::<u32>() >> 8))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ForwardId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether a forward has its connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForwardState {
    /// Streams are forwarded.
    Open,
    /// The connection was lost, and is made again.
    Reconnecting,
}

/// A forward as it is now.
#[derive(Clone, Debug)]
pub struct ForwardStatus {
    /// Its id.
    pub id: ForwardId,
    /// The host.
    pub host: String,
    /// What is forwarded, with the port that was chosen.
    pub spec: ForwardSpec,
    /// Whether it has its connection.
    pub state: ForwardState,
    /// When the state began.
    pub since: SystemTime,
    /// Streams that are open now.
    pub open_streams: usize,
    /// All streams so far.
    pub streams: u64,
    /// Bytes from clients to the target.
    pub bytes_to_target: u64,
    /// Bytes from the target to clients.
    pub bytes_from_target: u64,
    /// Streams that failed, and attempts to connect again that failed.
    pub errors: u64,
    /// The last of them.
    pub last_error: Option<String>,
}
