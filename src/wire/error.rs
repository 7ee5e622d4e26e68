use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Code, Hint};

/// Why a call failed, and what to do next. A command that fails is not an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Error {
    /// What went wrong, by a name that does not change.
    pub code: Code,
    /// What went wrong, in this case.
    pub message: String,
    /// What to do next.
    #[schemars(with = "String")]
    pub hint: Hint,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// Of a write that was given up: how many bytes had gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub bytes_written: Option<usize>,
}

impl Error {
    /// An error that the same call will meet again.
    pub fn new(code: Code, message: impl Into<String>, hint: impl Into<Hint>) -> Self {
        Self { code, message: message.into(), hint: hint.into(), retryable: false, bytes_written: None }
    }

    /// A value that can't be what was given.
    /// An argument that can't be.
    pub fn invalid(message: impl Into<String>, hint: impl Into<Hint>) -> Self {
        Self::new(Code::InvalidArgument, message, hint)
    }

    /// The same error, with the host's name where the hint speaks of a HOST.
    #[must_use]
    pub(super) fn about(mut self, host: &str) -> Self {
        self.hint.replace("trust HOST", &format!("trust {host}"));
        self.hint.replace("[hosts.NAME]", &format!("[hosts.{host}]"));
        self
    }

    /// The same error, which may pass.
    #[must_use]
    pub fn retryable(self) -> Self {
        Self { retryable: true, ..self }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} ({})", self.code.as_str(), self.message, self.hint)
    }
}

impl std::error::Error for Error {}
