//! Floor 4: where a job meets its far end.
//!
//! # Theory of operation
//!
//! [`Runner::spawn`] walks through four steps, each in a file of its own. It *reserves* a place in the registry (`registry.rs`),
//! *opens* a channel on a shared connection (`open.rs`), *starts* the command there (`start.rs`), and leaves the job to a task
//! that *records* what happens until the job is over (`record.rs`). Until the command is sent, dropping the call takes the
//! reservation away; from then on the job is the runner's, whoever asked for it, and every way out of a step closes what was opened.
//!
//! The recording task is the only writer of the job's log. It asks the far end for events, hands each to the job's pure
//! [`Recorder`](crate::job::Recorder) and applies the changes that come back; it waits for no reader. (A job with one follower
//! has a connection to itself, and there the connection is held, not the task.) Readers wait on the log's watch; they and the
//! task never meet.
//!
//! What reaches into a running job goes beside its recording: stdin (`stdin.rs`) and signals. `kill.rs` ends a process tree
//! with a script that `on_machine.rs` runs on the job's own machine, over whatever connection leads there; `signal.rs` and
//! `shutdown.rs` decide for whom. `sweep.rs` keeps the bounds: finished jobs, output, idle connections.
//!
//! Every task sits in one `JoinSet`, which [`Runner::shutdown`] empties.

mod attached;
mod error;
mod idempotency;
mod key;
mod kill;
mod limits;
mod lookup;
mod meter;
mod on_machine;
mod open;
mod order;
mod record;
mod registry;
mod runner;
mod shared;
mod shutdown;
mod signal;
mod start;
mod stdin;
mod sweep;

pub use error::{SignalError, SpawnError, WriteError, chain};
pub use key::Key;
pub use kill::{DeliveredVia, SignalReport, Unverified};
pub use limits::Limits;
pub use lookup::{Lookup, Tombstone};
pub use order::Order;
pub use runner::Runner;
