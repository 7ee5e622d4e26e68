//! Signals: a script on the job's machine delivers them to all of its processes.
//!
//! # Theory of operation
//!
//! A signal does not use the job's channel: servers may ignore signal requests, and they reach only
//! one process. `signal_job.rs` runs a script (`job/shell/signal_script.rs`) on the job's machine. It
//! signals the process group, and processes that left it but carry the job's mark or descend from
//! one that does; waits for the grace; and reports whether a process is left.
//!
//! `on_machine.rs` finds the connection: the job's own, or another that is shown to lead to the same
//! machine in the same boot, because a name may stand for several machines. The script runs in the
//! control shell of that connection.
//!
//! The processes of a job that [became](sshjobs_job::Become) another user are signalled by that user,
//! on a channel of its own; those that it left to the account, by the account.

mod on_machine;
mod signal_job;

pub(crate) use on_machine::{BRIEF, OtherUser, run_on_machine, run_on_machine_as};
pub use signal_job::{DeliveredVia, SignalReport, Unverified};
pub(crate) use signal_job::{
    MEMBERS_AT_A_TIME, PGID_TIMEOUT, cancel_start, end_tree, kill, merged, process_group_told,
};
