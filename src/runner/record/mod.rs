//! Recording: the one task that writes a job's log, and the far end of attached jobs.

mod attached;
mod queued;
mod recording;

pub(crate) use attached::{Attached, AttachedControls};
pub(crate) use queued::{QueuedFarEnd, record_queued_in_task};
pub(crate) use recording::{Recording, record};
