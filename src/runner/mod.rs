//! Floor 2: where a job meets a connection.
//!
//! [`Runner::spawn`] leases a connection, starts the command and leaves it to a task of the runner's own, which reads
//! until the job is over. The runner owns every task, bounds how many jobs there are and how much output they keep, and
//! leaves nothing behind when it is shut down.

mod attend;
mod end;
mod error;
mod limits;
mod link;
mod reach;
mod reader;
mod registry;
mod spawn;
mod stdin;
mod sweep;
mod traffic;

pub use end::{DeliveredVia, SignalReport, Unverified};
pub use error::{SignalError, SpawnError, WriteError, chain};
pub use limits::Limits;
pub use link::{Directory, Link};
pub use reader::{EventSource, Reader};
pub use registry::{Lookup, Tombstone};
pub use spawn::Runner;
pub use traffic::Traffic;
