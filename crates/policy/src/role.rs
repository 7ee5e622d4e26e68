//! The roles of callers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Rights of a caller. Each role includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// See hosts and its own jobs, and read output.
    Read,
    /// Also start jobs, write to them, signal and delete them.
    Run,
    /// Also see and end the jobs of all callers.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 3] = [Self::Read, Self::Run, Self::Admin];

    /// The name in token files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Run => "run",
            Self::Admin => "admin",
        }
    }

    /// The role with a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_role_is_shown_by_its_name() {
        assert_eq!(Role::Admin.to_string(), "admin");
    }

    #[test]
    fn each_role_may_do_what_those_before_it_may() {
        assert!(Role::Read < Role::Run && Role::Run < Role::Admin);
    }
}
