use std::time::Duration;

/// The bounds of a [`Pool`].
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// How many channels are planned on one connection. OpenSSH's MaxSessions is 10; two are left for signals.
    pub channels_per_connection: usize,
    /// How many connections one host may get.
    pub connections_per_host: usize,
    /// After this long without a channel a connection is given up.
    pub idle: Duration,
    /// How long a caller waits for a place when all are taken.
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
