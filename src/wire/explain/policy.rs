//! Explains refusals of the policy.

use crate::jobs::{CantVote, PolicyRefusal, PolicyWhy as Why, VoteError};
use crate::wire::error::{Code, Error, Hint};

pub(super) fn policy(refusal: &PolicyRefusal) -> Error {
    let message = refusal.to_string();
    let denied = |hint: Hint| Error::new(Code::PolicyDenied, message.clone(), hint);
    match &refusal.why {
        // Recorded only: such a refusal has an error of its own.
        Why::Rights(_) => denied("ask the operator for another role".into()),
        Why::NotRecorded(_) => Error::new(
            Code::AuditFailed,
            message,
            "the operator must make room for the audit log, or make it writable; nothing was done",
        )
        .retryable(),
        Why::NotAllowed => {
            let hint = Hint::from("ssh_hosts lists the hosts and templates that you may use");
            denied(hint.or_for_a_person(
                "`sshjobs policy explain CALLER HOST COMMAND` shows what each rule says",
            ))
        }
        Why::Denied(_) => denied(
            "don't try another way: the operator has ruled this out, and can change the policy"
                .into(),
        ),
        Why::ApprovalPending { id, .. } => Error {
            approval_id: Some(id.as_str().into()),
            ..Error::new(Code::ApprovalPending, message, repeat_it()).retryable()
        },
        Why::ApprovalDenied { .. } => Error::new(
            Code::ApprovalDenied,
            message,
            "don't try another way; if it is needed all the same, talk to the approver",
        ),
        Why::ApprovalExpired { .. } => Error::new(
            Code::ApprovalExpired,
            message,
            "make the call again to ask again, when an approver is there",
        )
        .retryable(),
        Why::CantAsk(_) => Error::new(
            Code::ApprovalUnavailable,
            message,
            "nobody has refused it; use a template or a host that needs no approval, or ask the operator",
        ),
        Why::Limit { .. } if refusal.is_temporary() => {
            denied("wait for a job to end, or for a minute to pass".into()).retryable()
        }
        Why::Limit { .. } => denied("stay below the limit".into()),
        Why::UnknownTemplate { nearest } => {
            let meant = nearest.as_ref().map(|name| format!("did you mean {name:?}? "));
            let meant = meant.unwrap_or_default();
            let hint = Hint::from(format!("{meant}ssh_hosts lists the templates of each host"));
            let person = format!("{meant}`sshjobs hosts HOST` lists the templates of a host");
            Error::invalid(message, hint.or_for_a_person(person))
        }
        Why::Values(_) => {
            let hint = Hint::from("ssh_hosts lists the parameters of each template");
            let person = "`sshjobs hosts HOST` lists the parameters of each template";
            Error::invalid(message, hint.or_for_a_person(person))
        }
        Why::TemplateOption(option) => {
            denied(format!("omit {option}; the template sets what it needs").into())
        }
        Why::Unresolved => {
            denied("check the name, and that ssh_config and DNS can be read".into()).retryable()
        }
        Why::NoPolicy(_) => denied(
            "the operator must correct the policy file; `sshjobs policy check` shows its mistakes"
                .into(),
        ),
    }
}

fn repeat_it() -> Hint {
    let hint = Hint::from(
        "make exactly the same call again in a while; it goes through, once, after it is approved. An \
         idempotency_key makes repetition safe",
    );
    hint.or_for_a_person(
        "an approver decides with `sshjobs approve ID`; then make the same call again",
    )
}

/// Explains why an answer to an approval does not count.
pub(super) fn vote(error: &VoteError) -> Error {
    let message = error.to_string();
    match error {
        VoteError::NoPolicy => Error::invalid(message, "name a policy with --policy FILE"),
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
        VoteError::Unusable(_) => Error::new(
            Code::Io,
            message,
            "check the state directory, or the cluster's NATS",
        ),
    }
}
