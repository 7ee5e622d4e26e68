//! The log of a job: events of the far end become lines and an outcome, stored before they are
//! shown.

mod drain;
mod far_end;
mod log;
mod pending;
mod recorder;

pub use far_end::{Controls, FarEnd, FarEndError, FarEvent};
pub use log::{Log, Past, Phase, Status, wall_now};
pub(crate) use pending::Pending;
pub use pending::{Batch, LogEvent, OutputStore};
pub use recorder::{Change, End, Recorded, Recorder};
