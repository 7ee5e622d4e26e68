//! Explains refusals of the policy.

use super::approvals::not_approved;
use crate::error::{Code, Error, Hint};
use sshjobs_core::jobs::{PolicyRefusal, PolicyWhy};

pub(super) fn policy(refusal: &PolicyRefusal) -> Error {
    let message = refusal.to_string();
    let denied = |hint: Hint| Error::new(Code::PolicyDenied, message.clone(), hint);
    match &refusal.why {
        // Recorded only: such a refusal has an error of its own.
        PolicyWhy::Rights(_) => denied("ask the operator for another role".into()),
        PolicyWhy::NotRecorded(_) => Error::new(
            Code::AuditFailed,
            message,
            "the operator must make room for the audit log, or make it writable; nothing was done",
        )
        .retryable(),
        PolicyWhy::NotAllowed => {
            let hint = Hint::from("ssh_hosts lists the hosts and templates that you may use");
            denied(hint.or_for_a_person(
                "`sshjobs policy explain CALLER HOST COMMAND` shows what each rule says",
            ))
        }
        PolicyWhy::Denied(_) => denied(
            "don't try another way: the operator has ruled this out, and can change the policy"
                .into(),
        ),
        PolicyWhy::ApprovalPending { .. }
        | PolicyWhy::ApprovalDenied { .. }
        | PolicyWhy::ApprovalExpired { .. }
        | PolicyWhy::ApprovalsUnusable
        | PolicyWhy::NoRoomToAsk(_)
        | PolicyWhy::CantAsk(_) => not_approved(&refusal.why, message),
        PolicyWhy::Limit { .. } if refusal.is_temporary() => {
            denied("wait for a job to end, or for a minute to pass".into()).retryable()
        }
        PolicyWhy::Limit { .. } => denied("stay below the limit".into()),
        PolicyWhy::UnknownTemplate { nearest } => {
            let meant = nearest.as_ref().map(|name| format!("did you mean {name:?}? "));
            let meant = meant.unwrap_or_default();
            let hint = Hint::from(format!("{meant}ssh_hosts lists the templates of each host"));
            let person = format!("{meant}`sshjobs hosts HOST` lists the templates of a host");
            Error::invalid(message, hint.or_for_a_person(person))
        }
        PolicyWhy::Values(_) => {
            let hint = Hint::from("ssh_hosts lists the parameters of each template");
            let person = "`sshjobs hosts HOST` lists the parameters of each template";
            Error::invalid(message, hint.or_for_a_person(person))
        }
        PolicyWhy::TemplateOption(option) => {
            denied(format!("omit {option}; the template sets what it needs").into())
        }
        PolicyWhy::Unresolved => {
            denied("check the name, and that ssh_config and DNS can be read".into()).retryable()
        }
        PolicyWhy::NoPolicy(_) => denied(
            "the operator must correct the policy file; `sshjobs policy check` shows its mistakes"
                .into(),
        ),
    }
}
