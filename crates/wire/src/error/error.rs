use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::code::Code;
use super::hint::Hint;

/// Why a call failed, and what to do next. A command that exits with an error is not an `Error`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Error {
    /// Stable code of the error.
    pub code: Code,
    /// What failed, with the value.
    pub message: String,
    /// Suggestion what to do next.
    #[schemars(with = "String")]
    pub hint: Hint,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// For a write that was given up: bytes that were written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub bytes_written: Option<usize>,
    /// For a call that waits for an approver: the id of its approval.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub approval_id: Option<Box<str>>,
}

impl Error {
    /// An error that the same call would get again.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<Hint>) -> Self {
        Self {
            code,
            message: message.into(),
            hint: hint.into(),
            retryable: false,
            bytes_written: None,
            approval_id: None,
        }
    }

    /// An `invalid_argument` error.
    pub fn invalid(message: impl Into<String>, hint: impl Into<Hint>) -> Self {
        Self::new(Code::InvalidArgument, message, hint)
    }

    /// Replaces HOST in the hint by the host's name.
    #[must_use]
    pub fn about(mut self, host: &str) -> Self {
        // The explanations don't know the host, so their hints have placeholders.
        self.hint.replace("trust HOST", &format!("trust {host}"));
        self.hint.replace("[hosts.NAME]", &format!("[hosts.{host}]"));
        self
    }

    /// Marks the error as temporary.
    #[must_use]
    pub fn retryable(self) -> Self {
        Self {
            retryable: true,
            ..self
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {} ({})",
            self.code.as_str(),
            self.message,
            self.hint
        )
    }
}

impl std::error::Error for Error {}
