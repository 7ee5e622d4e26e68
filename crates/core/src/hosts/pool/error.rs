use std::sync::Arc;
use std::time::Duration;

/// Why a lease failed.
#[derive(Debug, thiserror::Error)]
pub enum PoolError<E> {
    /// No connection could be made. Callers that waited for the same attempt share the error.
    #[error(transparent)]
    Connect(Arc<E>),
    /// All connections allowed for the host were full for the whole waiting time.
    #[error("all {connections} connections to {host} have been in full use for {waited:?}")]
    Full {
        /// The host.
        host: String,
        /// Number of connections.
        connections: usize,
        /// Waiting time.
        waited: Duration,
    },
}
