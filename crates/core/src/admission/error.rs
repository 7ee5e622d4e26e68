//! Why a call is not admitted.

use super::refusal::PolicyRefusal;
use super::voting::VoteError;
use crate::hosts::HostError;
use sshjobs_job::Caller;
use sshjobs_policy::Role;

/// Why a call is not admitted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum Refusal {
    /// The caller's role does not allow it.
    #[error("{caller} may not do this: it has the role {role}, and this takes {needed}")]
    Denied {
        /// The caller.
        caller: Caller,
        /// The caller's role.
        role: Role,
        /// The required role.
        needed: Role,
    },
    /// The caller has no rights on this host.
    #[error("{caller} may not use {host:?}")]
    DeniedHost {
        /// The caller.
        caller: Caller,
        /// The host, as named by the caller.
        host: String,
        /// The most similar host among those that the caller may use.
        nearest: Option<String>,
    },
    /// The policy refuses it.
    #[error(transparent)]
    Policy(Box<PolicyRefusal>),
    /// An answer to an approval does not count.
    #[error(transparent)]
    Vote(#[from] Box<VoteError>),
    /// The host can't be used.
    #[error(transparent)]
    Host(#[from] HostError),
}

impl From<Box<PolicyRefusal>> for Refusal {
    fn from(refusal: Box<PolicyRefusal>) -> Self {
        Self::Policy(refusal)
    }
}

impl From<VoteError> for Refusal {
    fn from(error: VoteError) -> Self {
        Self::Vote(Box::new(error))
    }
}
