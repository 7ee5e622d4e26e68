use std::time::Duration;

/// The bounds of a [`Pool`](super::Pool).
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// Channels planned on one connection. OpenSSH's MaxSessions is 10; two places are left for signals.
    pub channels_per_connection: usize,
    /// Most connections to one host.
    pub connections_per_host: usize,
    /// Time without a channel after which a connection is closed.
    pub idle: Duration,
    /// Time for which a caller waits for a place when all are taken.
    pub queue: Duration,
}

/// What a pool holds for one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Live connections.
    pub connections: usize,
    /// Leases on them.
    pub channels_in_use: usize,
}
