//! Test cases as a policy file writes them.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Spanned;

use super::case::{ExpectedDecision, PolicyCase};
use super::claims::Claims;
use super::hours::minute_of_week;
use super::mistake::{MistakeLines, PolicyMistake, unknown};
use super::request::PolicyCaller;
use super::role::Role;
use super::verb::Verb;

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
