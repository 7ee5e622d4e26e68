//! Floor 2: from a host's name to a connection.
//!
//! [`Hosts`] is the one place for it, shared by jobs, `trust` and probing: a [`HostBook`] knows which names there are and what
//! they stand for, a [`Pool`] shares [`Link`]s, each of which is a connection and what its far end runs commands with. Logins
//! that fail are paused, jump hosts are shared, and people are asked one question at a time, each caller's own.

mod begun_ahead;
mod book;
mod breaker;
mod connector;
mod error;
mod host_ref;
mod hosts;
mod link;
mod linker;
mod login_shell;
mod pool;
mod short_command;
mod spare_channel;
mod traffic;

pub use book::{Access, HostBook};
pub use connector::Prompters;
pub use error::HostError;
pub use host_ref::HostRef;
pub use hosts::Hosts;
pub use link::Link;
pub use linker::Linker;
pub use pool::{Connect, Lease, Pool, PoolError, PoolLimits, Pooled, Usage};
pub use short_command::{Begun, Printed, run_fed, run_short};
pub use spare_channel::Opened;
pub use traffic::Traffic;
