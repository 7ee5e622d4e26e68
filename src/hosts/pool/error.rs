use std::sync::Arc;
use std::time::Duration;

/// Why there is no lease.
#[derive(Debug, thiserror::Error)]
pub enum PoolError<E> {
    /// No connection could be made. Who waited for the same one is told the same.
    #[error(transparent)]
    Connect(Arc<E>),
    /// Every connection that the host may get was full for as long as a caller waits.
    #[error("all {connections} connections to {host} have been in full use for {waited:?}")]
    Full {
        /// The host.
        host: String,
        /// How many there are.
        connections: usize,
        /// How long a place was waited for.
        waited: Duration,
    },
}
