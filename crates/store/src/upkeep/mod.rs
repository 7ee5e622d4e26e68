//! Care for a state directory: what is damaged in it, repair, copies.
//!
//! Records are in `jobs.db`, and a copy of each job's first record lies beside its output. Output has checksums. So damage is
//! found by reading, and a database that is lost is made again from `output/`.

mod archive;
mod check;
mod repair;

pub use archive::{ArchiveReport, back_up, restore};
pub use check::{DamagedOutput, StateCheck, check_state};
pub use repair::{RepairReport, repair_state};
