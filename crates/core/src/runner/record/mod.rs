//! Recording: the one task that writes a job's log, and the far ends that it asks.
//!
//! # Theory of operation
//!
//! A recording task asks a far end for events: an attached job's channel (`attached.rs`), or a
//! queue that a follower or a roll-out fills (`queued.rs`). It passes each event to the job's pure
//! [`Recorder`](sshjobs_job::Recorder), applies the changes that this returns to the log, and asks
//! again, until the job has ended or continues elsewhere.
//!
//! The task never waits for a reader. A job with a follower that may be slow
//! ([`Pace::OfFollower`](sshjobs_job::Pace::OfFollower)) has a connection of its own: while its
//! follower is behind, receiving on that connection is held, and the host has to wait.
//!
//! A time limit runs beside the recording: when it expires, the process tree is signalled while the
//! recording continues, so that the last output is not lost. An attached job has ended only when its
//! channel is closed or lost, or the drain time after its exit is over.
//!
//! A job whose terminal answers queries has a second task (`answer_queries.rs`), which draws its
//! screen as output arrives and writes the answers to its stdin. It reads the log like any reader.

mod answer_queries;
mod attached;
mod queued;
mod recording;

pub(crate) use answer_queries::{answer_queries, has_answering_terminal};
pub(crate) use attached::{Attached, AttachedControls};
pub(crate) use queued::{OutputCount, QueuedFarEnd, record_queued_in_task};
pub(crate) use recording::{RecordingTask, finish, record};
