//! Explains refusals of the policy.

use super::approvals::not_approved;
use crate::error::{Code, Error, Hint};
use sshjobs_core::jobs::{PolicyRefusal, PolicyWhy as Why};

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
        Why::ApprovalPending { .. }
        | Why::ApprovalDenied { .. }
        | Why::ApprovalExpired { .. }
        | Why::ApprovalsUnusable
        | Why::NoRoomToAsk(_)
        | Why::CantAsk(_) => not_approved(&refusal.why, message),
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
