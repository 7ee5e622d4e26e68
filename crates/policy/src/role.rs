//! The roles of callers.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Rights of a caller. Each role may use the verbs of those before it. Which jobs it sees is a question of
/// its own: [`sees_all_jobs`](Role::sees_all_jobs).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// See hosts and its own jobs, and read output.
    Read,
    /// See how the jobs of all callers stand, and read only the output of its own.
    Observe,
    /// See the jobs of all callers, and read their output.
    #[serde(rename = "observe-output")]
    ObserveOutput,
    /// Start jobs, write to them, signal and delete them.
    Run,
    /// Also see, read and end the jobs of all callers.
    Admin,
}

impl Role {
    /// All roles.
    pub const ALL: [Self; 5] = [
        Self::Read,
        Self::Observe,
        Self::ObserveOutput,
        Self::Run,
        Self::Admin,
    ];

    /// The name in token files and on the command line.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Observe => "observe",
            Self::ObserveOutput => "observe-output",
            Self::Run => "run",
            Self::Admin => "admin",
        }
    }

    /// Whether it sees the jobs of all callers, and not only its own.
    pub fn sees_all_jobs(self) -> bool {
        match self {
            Self::Observe | Self::ObserveOutput | Self::Admin => true,
            Self::Read | Self::Run => false,
        }
    }

    /// Whether it may read the output of jobs that it sees and that are not its own.
    pub fn reads_output_of_others(self) -> bool {
        matches!(self, Self::ObserveOutput | Self::Admin)
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
        assert!(Role::ALL.is_sorted());
    }

    #[test]
    fn a_role_is_stored_by_its_name() {
        for role in Role::ALL {
            let stored = serde_json::to_value(role).unwrap();
            assert_eq!(stored, role.as_str());
            assert_eq!(Role::named(role.as_str()), Some(role));
        }
    }
}
