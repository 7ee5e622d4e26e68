//! The events of a job's log.

use bytes::Bytes;

use crate::Outcome;
use sshjobs_output::{Checkpoint, OutputSource};

/// An event of a job's log, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogEvent {
    /// Bytes were printed.
    Append(OutputSource, Bytes),
    /// Both streams have ended.
    FinishStreams,
    /// The job has ended.
    End(Outcome),
    /// Output is missing, and the log continues here.
    Gap(Box<Checkpoint>),
}
