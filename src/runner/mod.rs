//! Floor 3: starts jobs on hosts, records their output and signals them.
//!
//! # Theory of operation
//!
//! [`Runner::spawn`] takes four steps. `start.rs` *reserves* a slot in the registry, *opens* a
//! channel on a shared connection (`open.rs`) and *starts* the command there. Then a task *records*
//! the job until it has ended (`record.rs`). Until the command is sent, dropping the call cancels
//! the reservation. From then on the job belongs to the runner and outlives the call. A step that
//! fails closes what it opened.
//!
//! Only the recording task appends to the job's log. Other tasks may trim the log, or end a job
//! without a recorder. The recording task asks the far end for events, passes each to the job's
//! pure [`Recorder`](crate::job::Recorder) and applies the changes that it returns. Readers wait on
//! the log's `watch` channel and never talk to the task, so the task waits for no reader. A job
//! with [`Pace::OfFollower`](crate::job::Pace::OfFollower) has a connection of its own. If its
//! follower falls behind, reading from that connection pauses, and the task itself still never
//! waits.
//!
//! Input and signals to a running job bypass the recording task. `stdin.rs` writes to the far end.
//! Signals reach the processes through a script (`job/signal_script.rs`), which `on_machine.rs`
//! runs on the job's machine over any connection that leads there. `signal.rs` and the time limit
//! in `record.rs` use it through `signal_tree.rs`; `shutdown.rs` uses it for many jobs at once.
//! `sweep.rs` enforces the limits on finished jobs, buffered output and idle connections.
//!
//! The tasks that start, record and sweep jobs are in one `JoinSet`, which [`Runner::shutdown`]
//! aborts at its end. Short commands that must finish even if their caller goes away
//! (`hosts::run_short`) are spawned separately, with a time limit.

mod api;
mod durable;
mod fleet;
mod foreign;
mod owner;
mod record;
mod signal;
mod start;
mod state;
mod storing;

pub use api::{Runner, Stats, Summary};
pub use signal::{DeliveredVia, SignalReport, Unverified};
pub use state::{
    Key, Limits, Lookup, Order, SignalError, SpawnError, Tombstone, WriteError, chain,
};
