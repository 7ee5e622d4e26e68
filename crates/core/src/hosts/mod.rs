//! From a host's name to a connection.
//!
//! [`Hosts`] is used by jobs, `trust` and probing. A [`HostBook`] has the names of hosts and their
//! settings. A [`Pool`] shares [`Link`]s, each a connection with its login shell. Failing logins
//! are paused, jump hosts are shared, and each caller is asked one question at a time.

mod book;
mod breaker;
mod connector;
mod control_shell;
mod error;
mod gate;
mod host_ref;
mod hosts;
mod link;
mod linker;
mod login_shell;
mod opened_streams;
mod pool;
mod short_command;
mod slot_wait;
mod spare_channel;
mod traffic;

pub use book::{Access, HostBook};
pub use connector::Prompters;
pub use control_shell::Script;
pub use error::HostError;
pub use gate::{Asking, BecomeError, ExecAsError, GateLogin};
pub use host_ref::HostRef;
pub use hosts::Hosts;
pub use link::Link;
pub use linker::Linker;
pub use opened_streams::StreamReservation;
pub use pool::{Connect, HostUsage, Lease, Pool, PoolError, PoolLimits, Pooled, RefusedChannels};
pub use short_command::{CommandOutcome, feed_started, run_fed, run_short};
pub use slot_wait::{SlotWait, is_refused};
pub use spare_channel::OpenedChannel;
pub use traffic::Traffic;
