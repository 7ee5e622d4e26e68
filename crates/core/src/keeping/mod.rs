//! Storing the output and the records of this process's jobs.
//!
//! # Theory of operation
//!
//! Output is shown once it is stored. A recording task puts events into its job's queue
//! (`crates/job/src/keeping`, which has the states) and calls the threads `sshjobs-output`. One of them takes a batch,
//! appends it to the job's segment, and only then applies it to the log, where readers see it. The
//! recording task takes nothing more from its far end while the queue is long, unless the store stands still.
//!
//! Three more threads: `sshjobs-records` writes the records of changed jobs in one transaction;
//! `sshjobs-sync` syncs written output to the disk once a second; `sshjobs-overdue` shows output
//! without storing it when nothing at all was stored for five seconds, so that a hung disk hides
//! nothing. The output that is stored next begins with a checkpoint, which marks the gap.
//!
//! `Storing::start` starts these threads. `Storing::new` does not: the simulation makes their steps, and
//! `interleavings.rs` runs them beside a recorder and readers in many orders.
//!
//! Lock order: a job's writer, then its queue, then its log. Debug builds check it (`lock.rs`).

mod health;
#[cfg(all(test, shuttle))]
mod interleavings;
mod kept_job;
mod output;
mod records;
mod requests;
mod retention_clock;
mod storing;
mod sweep;
#[cfg(test)]
mod tests;
mod threads;

pub(crate) use records::{FLUSH_TO_END, FLUSH_TO_READ, Registration};
#[cfg(test)]
pub(crate) use requests::StoringRequests;
pub(crate) use storing::Storing;
