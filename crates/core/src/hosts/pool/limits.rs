use std::time::Duration;

/// Limits of a [`Pool`](super::Pool).
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Maximum channels on one connection. OpenSSH's MaxSessions is 10; two are left for signals.
    pub channels_per_connection: usize,
    /// Maximum connections to one host.
    pub connections_per_host: usize,
    /// Time without channels after which a connection is closed.
    pub idle: Duration,
    /// Time for which a caller waits for a slot when all are taken.
    pub queue: Duration,
}

/// A pool's use of one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostUsage {
    /// Number of live connections.
    pub connections: usize,
    /// Number of leases on them.
    pub channels_in_use: usize,
}
