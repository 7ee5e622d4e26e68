//! Explains why a secret can't be used.

use crate::jobs::SecretRefusal;
use crate::wire::error::{Code, Error};

pub(super) fn secret(refusal: &SecretRefusal) -> Error {
    let message = refusal.to_string();
    match refusal {
        SecretRefusal::NotAllowed { usable, .. } if usable.is_empty() => {
            let hint = "there is none that you may use there: the operator allows it in a table \
                [secrets.NAME] of the configuration, with its hosts and callers";
            Error::new(Code::SecretDenied, message, hint)
        }
        SecretRefusal::NotAllowed { usable, .. } => {
            let hint = format!("those that you may use there: {}", usable.join(", "));
            Error::new(Code::SecretDenied, message, hint)
        }
        SecretRefusal::Unreadable { .. } => Error::new(
            Code::SecretUnavailable,
            message,
            "the operator must correct its source; nothing was started or written",
        )
        .retryable(),
        SecretRefusal::Empty(_) => Error::new(
            Code::SecretUnavailable,
            message,
            "the operator must write its value to its source; nothing was started or written",
        ),
        SecretRefusal::TooShort(_) => Error::new(
            Code::SecretUnavailable,
            message,
            "the operator can choose a longer value, or set scrub = false for it",
        ),
        SecretRefusal::NotOfDurableJob { .. } => Error::new(
            Code::Unsupported,
            message,
            "start the job with secret_env or secret_stdin, or without durable",
        ),
    }
}
