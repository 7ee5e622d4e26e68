//! Test cases in a policy file: calls, and the expected decisions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::request::{PolicyCaller, WeekMinute};
use super::verb::Verb;

/// A test case.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyCase {
    /// Line of the file where it begins, from 1.
    pub line: usize,
    /// Who calls.
    pub caller: PolicyCaller,
    /// The verb.
    pub verb: Verb,
    /// The host, as a caller names it. `None` for a call about no host.
    pub host: Option<String>,
    /// The user that the command becomes.
    pub becomes: Option<String>,
    /// The template that the command comes from. `None` for a free command.
    pub template: Option<String>,
    /// Values of its parameters.
    pub params: BTreeMap<String, String>,
    /// Where a forward leads to, as `HOST:PORT`.
    pub target: Option<String>,
    /// The time of the call. `None` for now.
    pub at: Option<WeekMinute>,
    /// The expected decision.
    pub expected: ExpectedDecision,
    /// The rule that has to be among those that decide.
    pub rule: Option<String>,
}

/// The expected decision of a test case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedDecision {
    /// It is allowed without an approval.
    Allow,
    /// It is allowed once someone has agreed.
    Approval,
    /// It is denied.
    Deny,
}

impl ExpectedDecision {
    /// The word in a policy file.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Approval => "approval",
            Self::Deny => "deny",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expected_decision_is_named_as_in_a_policy_file() {
        for expected in [
            ExpectedDecision::Allow,
            ExpectedDecision::Approval,
            ExpectedDecision::Deny,
        ] {
            assert_eq!(serde_json::to_value(expected).unwrap(), expected.as_str());
        }
    }
}
