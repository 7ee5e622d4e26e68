//! The order of jobs: each waits for others, and for its place in a queue.
//!
//! # Theory of operation
//!
//! A job with a [`Turn`](sshjobs_job::Turn) is registered at once. Its launch then waits in this module.
//! First it waits for the ends of the jobs in `after` and `after_ok`. Then it joins its queue: a list of
//! jobs that all processes with the same store share (`state/queues.rs`), oldest first. A job may start
//! when fewer jobs are ahead of it than its queue runs at a time. The list then notes that it had its
//! turn: from there on it can't be held or moved. It stays in the list until it ends.
//!
//! A person may hold a job, which then lets others pass, or a queue, of which nothing starts until it is
//! released, and may move a job among those that wait ([`change_queue`]). Waiting jobs look again every
//! second, so they notice that.
//!
//! The process that records a job removes it from the list when it ends. If that process is killed, the
//! processes with waiting jobs do it: each looks at the jobs ahead of its own. A job that is cancelled
//! leaves the list. While the list can't be read or stored, its jobs wait on.
//!
//! Last, a job that needs GPUs asks its host for them, again and again until they are free, and claims them
//! there (`wait_for_gpus.rs`). The claim is a file beside the job's own, and ends with the job.
//!
//! A durable job that waits keeps its record and its place when its process ends. The next process that
//! serves adopts it and launches it again.

mod change_queue;
mod wait_for_gpus;
mod wait_for_turn;

pub use change_queue::{QueueChange, QueueError, QueueStatus, QueuedJobStatus};
pub(crate) use change_queue::{change_job, hold_queue, list_queues};
pub(crate) use wait_for_gpus::{HostCapacity, capacity_of};
pub use wait_for_turn::WaitsFor;
pub(crate) use wait_for_turn::{take_turn, waits_for};
