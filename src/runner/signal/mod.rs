//! Signals: a script on the job's machine delivers them to all of its processes.

mod on_machine;
mod tree;

pub(crate) use on_machine::{BRIEF, run_on_machine};
pub use tree::{DeliveredVia, SignalReport, Unverified};
pub(crate) use tree::{PGID_TIMEOUT, end_tree, kill, process_group_told};
