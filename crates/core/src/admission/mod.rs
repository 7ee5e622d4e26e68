//! Who may do what: a call becomes a [`Permit`] or a [`Refusal`].
//!
//! # Theory of operation
//!
//! [`Admission`] admits the calls of one caller, whose [`CallContext`] it has. It checks, in this order, the
//! caller's role and host patterns, whether the host is another name of an excluded one, whether it is
//! listed, whether the caller might log in as the user that a command becomes, and the policy.
//! Refusals are recorded. What acts on a host or shows output takes a [`Permit`], which only this room
//! makes.
//!
//! A permit for a start owns its reservations: room under the limits of the policy, the use
//! of an approval, and the line in the audit log that its outcome completes. The runner commits it
//! with the job, or fails it. Dropped before the runner has it, it gives everything back. A start that
//! is refused still counts in its minute.
//!
//! The [`Judge`] applies the policy. Without a policy file it allows everything.
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

mod admission;
mod approvals;
mod asking;
mod auditor;
mod call;
mod context;
mod error;
mod excluded;
mod explanation;
mod judge;
mod machines;
mod named_hosts;
mod permit;
mod policy_in_force;
mod refusal;
mod repeated_reads;
mod rights;
mod ruling;
mod usage;
mod voting;

pub use admission::Admission;
pub(crate) use admission::{RepeatedStart, StartAnswer, StartCall};
pub(crate) use asking::LOOK_AGAIN;
pub(crate) use auditor::Auditor;
pub(crate) use call::{CallContent, HostAct, JudgedJob};
pub use context::CallContext;
pub use error::Refusal;
pub(crate) use excluded::is_excluded_by_address;
pub use explanation::{CaseResult, Explanation};
pub(crate) use judge::Judge;
pub(crate) use machines::CallPlace;
pub use permit::{
    Act, Connect, FilesOfHost, ForgetJob, HoldQueue, OpenForward, Permit, ReadOutput, SignalJob,
    Start, Starts, UseFiles, WriteInput,
};
pub use policy_in_force::{PolicyFileError, PolicyState};
pub use refusal::{PolicyLimit, PolicyRefusal, PolicyWhy};
pub use rights::{HostPatterns, Rights};
pub use voting::{NewVote, VoteError};
