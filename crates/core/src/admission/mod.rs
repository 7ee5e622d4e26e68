//! Applies the policy: who may do what on which machine.
//!
//! # Theory of operation
//!
//! Every verb passes the door (`door.rs`), which asks the [`Judge`] after it has checked role and host
//! patterns of the caller. Without a policy file the judge allows everything.
//!
//! `policy_in_force.rs` has the policy that is in force. It reads the file when the first call comes and
//! again, at most once a second, when a call comes after the file has changed. A file with a mistake
//! leaves the last good policy in force; if there was none, every call is denied.
//!
//! `machines.rs` finds out which machine a name means. A policy decides about a machine and not about a
//! name, so that no alias leads around a rule. The names of all listed hosts are resolved in the
//! background, at most every half minute.
//!
//! `auditor.rs` records each decision in the audit log, if the policy names one.
//!
//! `asking.rs` makes a decision. If a rule asks for an approval, it asks for one and waits a while, and
//! `approvals.rs` keeps the list of approvals where all processes with the same store see it. `voting.rs`
//! lets approvers answer.
//!
//! `usage.rs` counts the jobs and starts of each caller, for the limits of rules.

mod approvals;
mod asking;
mod auditor;
mod call;
mod explanation;
mod judge;
mod machines;
mod policy_in_force;
mod refusal;
mod repeated_reads;
mod ruling;
mod usage;
mod voting;

pub(super) use asking::LOOK_AGAIN;
pub(super) use auditor::Auditor;
pub(super) use call::{Call, Content, On, Starting};
pub use explanation::{CaseResult, Explanation};
pub(super) use judge::{Judge, Permission, Start};
pub(super) use machines::Place;
pub use policy_in_force::{PolicyFileError, PolicyState};
pub use refusal::{Limit, PolicyRefusal, Why};
pub(super) use ruling::EarlierStart;
pub(super) use voting::Voter;
pub use voting::{Ballot, VoteError};
