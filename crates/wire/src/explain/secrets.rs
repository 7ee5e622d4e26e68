//! Explains why a secret can't be used.

use crate::error::{Code, Error, Hint};
use sshjobs_core::jobs::SecretRefusal;

pub(super) fn secret(refusal: &SecretRefusal) -> Error {
    let message = refusal.to_string();
    match refusal {
        SecretRefusal::NotAllowed { usable, .. } if usable.is_empty() => {
            let hint = "you may use no secret on this host: the operator allows one in a table \
                [secrets.NAME] of the configuration, with its hosts and callers";
            Error::new(Code::SecretDenied, message, hint)
        }
        SecretRefusal::NotAllowed { usable, .. } => {
            let hint = format!(
                "secrets that you may use on this host: {}",
                usable.join(", ")
            );
            Error::new(Code::SecretDenied, message, hint)
        }
        SecretRefusal::Unreadable(_) => Error::new(
            Code::SecretUnavailable,
            message,
            "the operator must correct its source, as the log says; nothing was started or written",
        )
        .retryable(),
        SecretRefusal::Empty(_) => Error::new(
            Code::SecretUnavailable,
            message,
            "the operator must write its value to its source; nothing was started or written",
        ),
        SecretRefusal::TooLong(_) | SecretRefusal::Nul(_) => Error::new(
            Code::SecretUnavailable,
            message,
            "the operator must choose another value; nothing was started or written",
        ),
        SecretRefusal::TooShort(_) => Error::new(
            Code::SecretUnavailable,
            message,
            "the operator can choose a longer value, or set scrub = false for it; nothing was \
             started or written",
        ),
        SecretRefusal::NotOfDurableJob { .. } => {
            let hint = Hint::from(
                "start the job with this secret in secret_env or secret_stdin, or without durable",
            );
            let person = "start the job with this secret in --secret-env or --secret-stdin, or with \
                --attached";
            Error::new(Code::Unsupported, message, hint.or_for_a_person(person))
        }
    }
}
