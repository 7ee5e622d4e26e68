//! Explains why a call is not approved, and why an answer to an approval does not count.

use crate::error::{Code, Error, Hint};
use sshjobs_core::jobs::{CantVote, PolicyWhy, VoteError};

/// Explains why a call that needs an approval does not have it.
pub(super) fn not_approved(why: &PolicyWhy, message: String) -> Error {
    if let PolicyWhy::ApprovalPending { id, .. } = why {
        return Error {
            approval_id: Some(id.as_str().into()),
            ..Error::new(Code::ApprovalPending, message, repeat_it()).retryable()
        };
    }
    let (code, hint) = hint_for(why);
    let error = Error::new(code, message, hint);
    let is_temporary = matches!(
        why,
        PolicyWhy::ApprovalExpired { .. }
            | PolicyWhy::NoRoomToAsk(_)
            | PolicyWhy::ApprovalsUnusable
    );
    if is_temporary {
        error.retryable()
    } else {
        error
    }
}

fn hint_for(why: &PolicyWhy) -> (Code, &'static str) {
    if let PolicyWhy::ApprovalDenied { .. } = why {
        let hint = "don't try another way; if it is needed all the same, talk to the approver";
        return (Code::ApprovalDenied, hint);
    }
    if let PolicyWhy::ApprovalExpired { .. } = why {
        let hint = "make the call again to ask again, when an approver is there";
        return (Code::ApprovalExpired, hint);
    }
    if let PolicyWhy::ApprovalsUnusable = why {
        let hint = "the operator must check the state directory, or the cluster's NATS";
        return (Code::Io, hint);
    }
    if let PolicyWhy::NoRoomToAsk(_) = why {
        let hint = "make the call again when others were answered; unanswered ones expire after ten minutes";
        return (Code::ApprovalUnavailable, hint);
    }
    let hint = "no approver has refused it; use a template or a host that needs no approval, start it \
                on one host at a time, or ask the operator";
    (Code::ApprovalUnavailable, hint)
}

fn repeat_it() -> Hint {
    let hint = Hint::from(
        "make exactly the same call again in a while, with the same idempotency_key if it had one; it \
         goes through, once, after it is approved",
    );
    hint.or_for_a_person(
        "an approver decides with `sshjobs approve ID`; then make the same call again",
    )
}

/// Explains why an answer to an approval does not count.
pub(super) fn vote(error: &VoteError) -> Error {
    let message = error.to_string();
    match error {
        VoteError::NoPolicy => {
            Error::new(Code::NotFound, message, "name a policy with --policy FILE")
        }
        VoteError::PolicyFile(_) => Error::new(
            Code::PolicyDenied,
            message,
            "the operator must correct the policy file; `sshjobs policy check` shows its mistakes",
        ),
        VoteError::NotApprover(_) => Error::new(
            Code::PolicyDenied,
            message,
            "an [[approvers]] table of the policy must name the caller",
        ),
        VoteError::CantVote(CantVote::Unknown(_)) => Error::new(
            Code::NotFound,
            message,
            "`sshjobs approvals` lists those that wait",
        ),
        VoteError::CantVote(CantVote::OwnCall { .. }) => Error::new(
            Code::PolicyDenied,
            message,
            "another approver has to decide about one's own calls",
        ),
        VoteError::CantVote(_) | VoteError::Voided(_) => Error::new(
            Code::ApprovalClosed,
            message,
            "`sshjobs approvals --all` shows its state; the caller has to make the call again",
        ),
        VoteError::NotRecorded(_) => Error::new(
            Code::AuditFailed,
            message,
            "the operator must make room for the audit log, or make it writable",
        )
        .retryable(),
        VoteError::Unusable => Error::new(
            Code::Io,
            message,
            "check the state directory, or the cluster's NATS",
        ),
    }
}
