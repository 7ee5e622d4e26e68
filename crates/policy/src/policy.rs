//! A policy, read from its file.

use std::collections::BTreeMap;

use super::case::PolicyCase;
use super::decision;
use super::decision::PolicyDecision;
use super::pattern::{CallerPattern, HostPattern};
use super::request::{CommandSource, MachineAccount, PolicyCaller, PolicyRequest, WeekMinute};
use super::rule::{ApprovalFrom, Effect, Rule};
use super::rules::Rules;
use super::template::Template;
use super::verb::Verb;
use crate::audit::AuditSettings;

/// Who may do what. See the [module](super) for its rules.
#[derive(Clone, Debug)]
pub struct Policy {
    pub(super) rules: Rules,
    /// Callers who may agree to calls of others.
    pub(super) approvers: Vec<CallerPattern>,
    pub(super) templates: BTreeMap<String, Template>,
    pub(super) cases: Vec<PolicyCase>,
    pub(super) audit: Option<AuditSettings>,
}

impl Policy {
    /// Decides on a call.
    pub fn decide(&self, request: &PolicyRequest<'_>) -> PolicyDecision<'_> {
        decision::decide(self.rules.for_caller(request.caller), request)
    }

    /// True if a rule without hosts and users allows a call, and no rule could deny it on some machine.
    /// If false, each machine has to be decided on.
    pub fn allows_everywhere(&self, request: &PolicyRequest<'_>) -> bool {
        let everywhere = PolicyRequest {
            endpoint: None,
            ..*request
        };
        let matches = |rule: &&Rule| rule.matches_somewhere(&everywhere);
        let is_denied = self
            .rules
            .for_caller(request.caller)
            .filter(matches)
            .any(|rule| rule.effect == Effect::Deny);
        let is_allowed = self.rules.for_caller(request.caller).filter(matches).any(|rule| {
            let is_everywhere = rule.hosts.is_empty() && rule.users.is_empty();
            rule.effect == Effect::Allow && is_everywhere && rule.approval == ApprovalFrom::None
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

    /// The templates whose commands only look. A caller who may look at a host may run them there.
    pub fn read_only_templates(&self) -> impl Iterator<Item = &Template> {
        self.templates.values().filter(|template| template.read_only)
    }

    /// The templates that a caller may run on a machine at some time.
    pub fn templates_for(
        &self,
        caller: &PolicyCaller,
        endpoint: &MachineAccount,
        minute: WeekMinute,
    ) -> impl Iterator<Item = &Template> {
        self.templates.values().filter(move |template| {
            let mut endpoint = endpoint.clone();
            endpoint.users.extend(template.becomes.clone());
            [Verb::Run, Verb::Spawn].into_iter().any(|verb| {
                let request = PolicyRequest {
                    caller,
                    verb,
                    endpoint: Some(&endpoint),
                    command: Some(CommandSource::Template(&template.name)),
                    target: None,
                    minute,
                };
                matches!(self.decide(&request), PolicyDecision::Allowed(_))
            })
        })
    }

    /// Whether a caller may agree to calls of others.
    pub fn is_approver(&self, caller: &PolicyCaller) -> bool {
        self.approvers.iter().any(|pattern| pattern.matches(caller))
    }

    /// Whether any rule or template asks someone to agree.
    pub fn asks_for_approval(&self) -> bool {
        self.rules.all().iter().any(|rule| rule.approval != ApprovalFrom::None)
            || self.templates.values().any(|template| template.approval != ApprovalFrom::None)
    }

    /// Whether any rule is about some machines or accounts only.
    pub fn looks_at_machines(&self) -> bool {
        self.rules
            .all()
            .iter()
            .any(|rule| !rule.hosts.is_empty() || !rule.users.is_empty())
    }

    /// Hosts that rules name without `*` and `?`.
    pub fn named_hosts(&self) -> Vec<String> {
        let patterns = self.rules.all().iter().flat_map(|rule| &rule.hosts);
        patterns.filter_map(HostPattern::exact_host).collect()
    }

    /// Where calls are recorded, if they are.
    pub fn audit(&self) -> Option<&AuditSettings> {
        self.audit.as_ref()
    }

    /// The test cases in the file.
    pub fn cases(&self) -> &[PolicyCase] {
        &self.cases
    }

    /// Number of rules.
    pub fn rule_count(&self) -> usize {
        self.rules.all().len()
    }
}

#[cfg(test)]
mod tests;
