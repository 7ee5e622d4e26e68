//! The log of a job: events of the far end become lines and an outcome.
//!
//! # Theory of operation
//! One task per job takes the events, and the [`Recorder`] turns them into changes. If the job is
//! stored, output and end go through its queue (`keeping`); otherwise the task changes the [`Log`] directly. Readers
//! wait for states of the log, and nothing waits for them.
//!
//! Output of a job that uses secrets passes `Scrubbing` first, so that neither queue nor store nor log
//! ever has a secret. It is locked until its result is recorded, so that output is recorded in the order in which it was
//! scrubbed: the recording task passes output through it, and a sweep releases what has been held back for a second. When a durable job is detached, held bytes are
//! dropped: the host sends them again to the process that takes the job over.

mod drain;
mod event;
mod far_end;
mod log;
mod recorder;
mod scrubbing;

pub use event::LogEvent;
pub use far_end::{Backlog, Controls, FarEnd, FarEndError, FarEvent};
pub use log::{Log, Past, Phase, Status, wall_now};
pub use recorder::{End, LogChange, Recorded, Recorder};
pub(super) use scrubbing::{Scrubbed, Scrubbing};
