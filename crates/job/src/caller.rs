//! Callers, and the jobs that an operation may use.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The caller of an operation, who owns its jobs, idempotency keys, cursors, prompts and secrets.
///
/// Callers neither see nor change each other's property.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Caller(Arc<str>);

/// The callers whose jobs an operation may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One caller.
    Of(Caller),
    /// All callers.
    All,
}

impl Scope {
    /// Whether a caller's jobs are in scope.
    pub fn has(&self, caller: &Caller) -> bool {
        match self {
            Self::Of(own) => own == caller,
            Self::All => true,
        }
    }
}

impl Caller {
    /// The caller with this name.
    pub fn new(name: &str) -> Self {
        Self(name.into())
    }

    /// The user who started the process.
    pub fn local() -> Self {
        Self::new("local")
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for Caller {
    fn from(name: String) -> Self {
        Self(name.into())
    }
}

impl From<Caller> for String {
    fn from(caller: Caller) -> Self {
        caller.as_str().to_owned()
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
