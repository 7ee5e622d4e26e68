//! Test cases in a policy file: calls, and the expected decisions.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use toml::Spanned;

use super::claims::Claims;
use super::hours::minute_of_week;
use super::mistake::{MistakeLines, PolicyMistake, unknown};
use super::request::{PolicyCaller, WeekMinute};
use super::role::Role;
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

/// A test case as it is written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct CaseText {
    caller: String,
    role: Option<Spanned<String>>,
    #[serde(default)]
    claims: BTreeMap<String, String>,
    verb: Option<Spanned<String>>,
    host: Option<String>,
    r#become: Option<String>,
    template: Option<String>,
    #[serde(default)]
    params: BTreeMap<String, Value>,
    target: Option<String>,
    at: Option<Spanned<String>>,
    expect: ExpectedDecision,
    rule: Option<String>,
}

/// The value of a parameter: a text, or a number for convenience.
#[derive(Deserialize)]
#[serde(untagged, expecting = "a text or a whole number")]
enum Value {
    Text(String),
    Number(i64),
}

impl PolicyCase {
    pub(super) fn read(
        lines: MistakeLines<'_>,
        text: Spanned<CaseText>,
    ) -> Result<Self, PolicyMistake> {
        let line = lines.line(&text.span());
        let text = text.into_inner();
        let role = match &text.role {
            None => Role::Run,
            Some(name) => Role::named(name.get_ref()).ok_or_else(|| {
                let known = Role::ALL.map(Role::as_str);
                lines.mistake(&name.span(), unknown("role", name.get_ref(), &known))
            })?,
        };
        let verb = match &text.verb {
            None => Verb::Run,
            Some(name) => Verb::named(name.get_ref()).ok_or_else(|| {
                let known = Verb::ALL.map(Verb::as_str);
                lines.mistake(&name.span(), unknown("verb", name.get_ref(), &known))
            })?,
        };
        let at =
            match &text.at {
                None => None,
                Some(at) => Some(minute_of_week(at.get_ref()).ok_or_else(|| {
                    lines.mistake(&at.span(), "write a time as mon 10:00, in UTC")
                })?),
            };
        let params = text.params.into_iter().map(|(name, value)| {
            let value = match value {
                Value::Text(text) => text,
                Value::Number(number) => number.to_string(),
            };
            (name, value)
        });
        Ok(Self {
            line,
            caller: PolicyCaller {
                name: text.caller,
                role,
                claims: Claims::with(text.claims),
            },
            verb,
            host: text.host,
            becomes: text.r#become,
            template: text.template,
            params: params.collect(),
            target: text.target,
            at,
            expected: text.expect,
            rule: text.rule,
        })
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
