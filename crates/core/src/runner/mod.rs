//! Starts jobs on hosts, records their output and signals them.
//!
//! # Theory of operation
//!
//! One room for each subject; each room's `mod.rs` says who runs there and who waits for whom:
//!
//! - `start`: from an order to a job that runs: reserve, register, launch, record.
//! - `turn`: the order of jobs that wait for others or in a queue.
//! - `record`: the one task of each job that writes its log, and limits its time.
//! - `durable`: jobs that a supervisor on their host keeps, and the session that follows them.
//! - `fleet`: the roll-out of a fleet, whose members are jobs of their own.
//! - `foreign`: jobs of other processes: found, copied from the store, and taken over.
//! - `owner`: calls between processes for stdin, terminals and signals of attached jobs.
//! - `signal`: signals to all processes of a job, verified.
//! - `keeping`, a room of its own: the threads that store output and records.
//! - `state`: what all tasks share: the registry, limits, errors.
//! - `api`: the [`Runner`], which the library calls.
//! - `simulation`, in tests only: the runner beside a simulated host, with faults that a seed decides.
//!
//! Only its recording task decides what is appended to a job's log; if the job is stored, the output
//! thread applies it once it is stored. Readers wait on the log's `watch` channel and never talk to
//! the task, so the task waits for no reader. Input and signals bypass it.
//!
//! All tasks are in one `JoinSet`, which [`Runner::shutdown`] aborts at its end. Short commands that
//! must finish even if their caller goes away (`hosts::run_short`) are spawned separately, with a
//! time limit.

mod api;
mod durable;
mod fleet;
mod foreign;
mod owner;
mod record;
mod seen_job;
mod signal;
mod start;
mod state;
#[cfg(test)]
mod tests;
mod turn;

pub use api::{Runner, Stats, Summary, Surroundings};
pub use seen_job::{Permitted, SeenJob};
pub use signal::{DeliveredVia, SignalReport, Unverified};
pub use state::{
    Key, Limits, Lookup, MissingGpus, Observer, QueuePlace, QueueRule, SecretReader, SignalError,
    SpawnError, StartOrder, Tombstone, WriteError, chain,
};
pub use turn::{QueueChange, QueueError, QueueStatus, QueuedJobStatus, WaitsFor};
