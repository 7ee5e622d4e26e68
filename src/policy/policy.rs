//! A policy, read from its file.

use std::collections::BTreeMap;

use super::case::Case;
use super::decision;
use super::decision::Decision;
use super::pattern::CallerPattern;
use super::request::{CommandSource, Endpoint, Identity, Request, WeekMinute};
use super::rule::{Effect, Rule};
use super::template::Template;
use super::verb::Verb;

/// Who may do what. See the [module](super) for its rules.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) rules: Vec<Rule>,
    /// Callers who may agree to calls of others.
    pub(super) approvers: Vec<CallerPattern>,
    pub(super) templates: BTreeMap<String, Template>,
    pub(super) cases: Vec<Case>,
}

impl Policy {
    /// Decides on a call.
    pub fn decide(&self, request: &Request<'_>) -> Decision<'_> {
        decision::decide(&self.rules, request)
    }

    /// Whether a call is allowed on every machine, as far as that is clear without looking at one.
    pub fn allows_everywhere(&self, request: &Request<'_>) -> bool {
        let everywhere = Request {
            endpoint: None,
            ..*request
        };
        let mut about = self.rules.iter().filter(|rule| rule.matches_somewhere(&everywhere));
        let is_everywhere = |rule: &Rule| rule.hosts.is_empty() && rule.users.is_empty();
        let mut is_allowed = false;
        let is_denied = about.any(|rule| match rule.effect {
            Effect::Deny => true,
            Effect::Allow => {
                is_allowed |= is_everywhere(rule);
                false
            }
        });
        is_allowed && !is_denied
    }

    /// The template with a name.
    pub fn template(&self, name: &str) -> Option<&Template> {
        self.templates.get(name)
    }

    /// Names of all templates.
    pub fn template_names(&self) -> impl Iterator<Item = &str> {
        self.templates.keys().map(String::as_str)
    }

    /// The templates that a caller may run on a machine at some time.
    pub fn templates_for(
        &self,
        caller: &Identity,
        endpoint: &Endpoint,
        minute: WeekMinute,
    ) -> impl Iterator<Item = &Template> {
        self.templates.values().filter(move |template| {
            let mut endpoint = endpoint.clone();
            endpoint.users.extend(template.becomes.clone());
            let may = |verb| {
                let request = Request {
                    caller,
                    verb,
                    endpoint: Some(&endpoint),
                    command: Some(CommandSource::Template(&template.name)),
                    target: None,
                    minute,
                };
                matches!(self.decide(&request), Decision::Allowed(_))
            };
            may(Verb::Run) || may(Verb::Spawn)
        })
    }

    /// Whether a caller may agree to calls of others.
    pub fn is_approver(&self, caller: &Identity) -> bool {
        self.approvers.iter().any(|pattern| pattern.matches(caller))
    }

    /// Whether any rule or template asks someone to agree.
    pub fn asks_for_approval(&self) -> bool {
        use super::rule::Approval::None as Nobody;
        self.rules.iter().any(|rule| rule.approval != Nobody)
            || self.templates.values().any(|template| template.approval != Nobody)
    }

    /// Whether any rule is about some machines or accounts only.
    pub fn looks_at_machines(&self) -> bool {
        self.rules.iter().any(|rule| !rule.hosts.is_empty() || !rule.users.is_empty())
    }

    /// The test cases in the file.
    pub fn cases(&self) -> &[Case] {
        &self.cases
    }

    /// Number of rules.
    pub fn rule_count(&self) -> usize {
        self.rules.len()
    }
}

#[cfg(test)]
mod tests;
