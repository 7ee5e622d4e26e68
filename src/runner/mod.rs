//! Floor 3: starts jobs on hosts, records their output and signals them.
//!
//! # Theory of operation
//!
//! [`Runner::spawn`] takes four steps. `start.rs` *reserves* a place in the registry, *opens* a channel on a shared connection
//! (`open.rs`), and *starts* the command there; then a task *records* the job until it is over (`record.rs`). Until the command
//! is sent, dropping the call takes the reservation away; from then on the job is the runner's, whoever asked for it. A step that
//! fails closes what it had opened.
//!
//! Only the recording task appends to the job's log; others may trim the log, or end a job that nobody records. The task asks
//! the far end for events, hands each to the job's pure [`Recorder`](crate::job::Recorder) and applies the changes that come back.
//! Readers wait on the log's `watch` channel and never talk to the task, so it waits for none of them. A job with
//! [`Pace::OfFollower`](crate::job::Pace::OfFollower) has a connection to itself; if its follower falls behind, reading from that
//! connection is paused, and the task itself still never waits.
//!
//! Input and signals to a running job bypass the recording task. `stdin.rs` writes to the far end. Signals reach the processes
//! through a script (`job/signal_script.rs`) that `on_machine.rs` runs on the job's machine, over whatever connection leads there:
//! `signal.rs` and the time limit in `record.rs` use it through `signal_tree.rs`, and `shutdown.rs` for many jobs at once.
//! `sweep.rs` enforces the limits on finished jobs, buffered output and idle connections.
//!
//! The tasks that start, record and sweep jobs are in one `JoinSet`, which [`Runner::shutdown`] aborts at its end. Short commands
//! that must come to their end without their caller (`hosts::run_short`) are spawned separately, with a time limit.

mod adopt;
mod attached;
mod durable;
mod elsewhere;
mod error;
mod find;
mod fleet;
mod fleet_controls;
mod fleet_signal;
mod follow_host;
mod followers;
mod idempotency;
mod leftovers;
mod limits;
mod lookup;
mod meter;
mod mirror;
mod on_machine;
mod open;
mod open_stored;
mod order;
mod record;
mod registry;
mod runner;
mod shared;
mod shutdown;
mod signal;
mod signal_tree;
mod spool_calls;
mod start;
mod stats;
mod stdin;
mod storing;
mod summary;
mod sweep;

pub use error::{SignalError, SpawnError, WriteError, chain};
pub use limits::Limits;
pub use lookup::{Lookup, Tombstone};
pub use order::{Key, Order};
pub use runner::Runner;
pub use signal_tree::{DeliveredVia, SignalReport, Unverified};
pub use stats::Stats;
pub use summary::Summary;
