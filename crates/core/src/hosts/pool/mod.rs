//! Connections that are shared between channels, host by host.
//!
//! A [`Pool`] grants [`Lease`]s: slots for one channel each. It makes another connection only when
//! all are full or heavily loaded, and not more than callers wait for. The first connection to a
//! host is made alone, so that a failing login fails only once.

mod connect;
mod connect_or_wait;
mod error;
mod limits;
mod pool;
mod slot;

pub use connect::{Connect, Pooled};
pub use error::PoolError;
pub use limits::{HostUsage, PoolLimits};
pub use pool::Pool;
pub use slot::{Lease, RefusedChannels};

#[cfg(test)]
mod tests;
