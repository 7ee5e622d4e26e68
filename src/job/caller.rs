use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// Who makes a call: the owner of the jobs, idempotency keys, cursors, prompts and secrets that come of it.
///
/// What one caller owns, another neither sees nor changes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Caller(Arc<str>);

/// Whose jobs a call is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Those of one caller.
    Of(Caller),
    /// Those of all.
    All,
}

impl Scope {
    /// Whether a caller's jobs are among them.
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

    /// Whoever started the process.
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
