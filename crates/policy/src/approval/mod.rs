//! Calls that another person has to agree to. Pure: it gets the time and the ids from its
//! callers, who keep the list.
//!
//! # Theory of operation
//!
//! A call that needs an approval is described by an [`ExactCall`]: everything that decides about its
//! effect, from the resolved accounts and host keys to the policy that asks. Its SHA-256 identifies it.
//! The [`ApprovalList`] has an [`Approval`] for each such call. The asker repeats the call; it is
//! performed once the list has an approval of exactly this call that is agreed to, and the approval is
//! used up by that. If anything about the call changes, it is another call, and the approval is
//! worth nothing.

mod approval;
mod exact_call;
mod list;

pub use approval::{Approval, ApprovalState, Vote};
pub use exact_call::ExactCall;
pub use list::{APPROVAL_LIFETIME, ApprovalList, ApprovalLookup, Ask, CantVote, TooManyApprovals};
