//! Decides on calls: denied by default, any rule that denies beats every rule that allows, and the
//! order of rules never matters.

use super::request::PolicyRequest;
use super::rule::{ApprovalFrom, Effect, Rule, RuleLimits};

/// The decision on a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyDecision<'a> {
    /// Any of these rules allows it. Rules that need no approval come first.
    Allowed(Vec<AllowingRule<'a>>),
    /// The rules with these names deny it.
    Denied(Vec<&'a str>),
    /// No rule allows it.
    NotAllowed,
}

/// A rule that allows a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AllowingRule<'a> {
    /// Name of the rule.
    pub rule: &'a str,
    /// Who has to agree.
    pub approval: ApprovalFrom,
    /// Number of callers who have to agree.
    pub approvals: u32,
    /// Limits on the call.
    pub limits: RuleLimits,
}

/// Compares a call with rules: all those that may be about its caller.
pub(super) fn decide<'a>(
    rules: impl Iterator<Item = &'a Rule>,
    request: &PolicyRequest<'_>,
) -> PolicyDecision<'a> {
    let mut permits = Vec::new();
    let mut denied = Vec::new();
    for rule in rules.filter(|rule| rule.matches(request)) {
        match rule.effect {
            Effect::Allow => permits.push(AllowingRule {
                rule: &rule.name,
                approval: rule.approval,
                approvals: rule.approvals,
                limits: rule.limits,
            }),
            Effect::Deny => denied.push(rule.name.as_str()),
        }
    }
    if !denied.is_empty() {
        return PolicyDecision::Denied(denied);
    }
    if permits.is_empty() {
        return PolicyDecision::NotAllowed;
    }
    permits.sort_by_key(|permit| (permit.approval, permit.approvals));
    PolicyDecision::Allowed(permits)
}
