//! Recording: the one task that writes a job's log, and the far end of attached jobs.

mod attached;
mod recording;

pub(crate) use attached::{Attached, AttachedControls};
pub(crate) use recording::{Recording, record, record_durable};
