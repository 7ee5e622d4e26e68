//! Connections that are shared between channels, host by host.
//!
//! A [`Pool`] gives [`Lease`]s: places for one channel each. A further connection is made only when all are full or heavy with
//! traffic, and not more than callers wait for; the first one of a host alone, so that a login that fails does so once.

mod connect;
mod connect_or_wait;
mod error;
mod limits;
mod pool;
mod slot;

pub use connect::{Connect, Pooled};
pub use error::PoolError;
pub use limits::{PoolLimits, Usage};
pub use pool::Pool;
pub use slot::Lease;

#[cfg(test)]
mod tests;
