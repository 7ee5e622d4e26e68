//! The log of a job: events of the far end become lines and an outcome, stored before they are
//! shown.
//!
//! # Theory of operation
//! One task per job takes the events, and the [`Recorder`] turns them into changes. If the job is
//! stored, output and end wait in its `Pending` queue: the store's thread takes a batch, writes it,
//! and then shows it in the [`Log`]. Otherwise the task changes the log directly. If the queue is
//! too long, the task shows it unstored; if a disk hangs, another thread of the store does. A batch
//! in flight is then overtaken, and may still be stored. Readers wait for states of the log, and
//! neither the task nor the threads wait for them. Locks are taken in this order: scrubbing, queue, log.
//!
//! Output of a job that uses secrets passes `Scrubbing` first, so that neither queue nor store nor log
//! ever has a secret. It is locked until its result is recorded, so that output is recorded in the order in which it was
//! scrubbed: the recording task passes output through it, and a sweep releases what has been held back for a second. When a durable job is detached, held bytes are
//! dropped: the host sends them again to the process that takes the job over.

mod drain;
mod far_end;
mod log;
mod pending;
mod recorder;
mod scrubbing;

pub use far_end::{Backlog, Controls, FarEnd, FarEndError, FarEvent};
pub use log::{Log, Past, Phase, Status, wall_now};
pub(crate) use pending::Pending;
pub use pending::{Batch, EndOfJob, LogEvent, OutputStore, StoreLoad};
pub use recorder::{End, LogChange, Recorded, Recorder};
pub(super) use scrubbing::{Scrubbed, Scrubbing};
