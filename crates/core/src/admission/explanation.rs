//! Explains the decision of the policy on a hypothetical call.

use std::sync::Arc;

use serde::Serialize;

use super::judge::{Judge, this_minute};
use super::machines::CallPlace;
use super::policy_in_force::PolicyFileError;
use sshjobs_job::Become;
use sshjobs_policy::{
    ApprovalFrom, CommandSource, ExpectedDecision, MachineAccount, PolicyCase, PolicyDecision,
    PolicyRequest, RuleLimits,
};

/// The decision of the policy on a call, and its reasons.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The decision.
    pub decision: ExpectedDecision,
    /// Names of the rules that decide. Empty if no rule allows the call.
    pub rules: Vec<String>,
    /// Who has to agree.
    pub approval: ApprovalFrom,
    /// Why the values of a template's parameters are not accepted, or why there is no such template.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mistake: Option<String>,
    /// The command that a template makes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// Names and addresses of the machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<String>,
    /// Other names that lead to the same machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub also_known_as: Vec<String>,
    /// Its tags.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// The accounts that the call uses there.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// Names and addresses of its jump hosts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub jumps: Vec<String>,
    /// Maximum running jobs of the caller under the first rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jobs: Option<u32>,
    /// Maximum starts of the caller in a minute under the first rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub starts_per_minute: Option<u32>,
    /// Maximum time limit of a job in seconds under the first rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u64>,
    /// Maximum bytes of a file under the first rule.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
}

/// A test case of the policy file, and the decision on it.
#[derive(Clone, Debug)]
pub struct CaseResult {
    /// The case.
    pub case: PolicyCase,
    /// The decision.
    pub explanation: Explanation,
}

impl CaseResult {
    /// Whether the policy decides as the case expects.
    pub fn has_passed(&self) -> bool {
        let is_expected = self.explanation.decision == self.case.expected;
        let has_rule =
            self.case.rule.as_ref().is_none_or(|rule| self.explanation.rules.contains(rule));
        is_expected && has_rule
    }
}

impl Judge {
    /// Explains the decision of the policy on a call. `None` without a policy.
    ///
    /// # Errors
    /// If the policy file can't be used.
    pub(crate) async fn explain(
        &self,
        case: &PolicyCase,
    ) -> Option<Result<Explanation, Arc<PolicyFileError>>> {
        let loaded = match self.policy_in_force().await? {
            Ok(loaded) => loaded,
            Err(error) => return Some(Err(error)),
        };
        let policy = &loaded.policy;
        let template = case.template.as_deref().and_then(|name| policy.template(name));
        let filled = template.map(|template| template.accept(&case.params));
        let user = template.and_then(|template| template.becomes.clone());
        let user = user.or_else(|| case.becomes.clone());
        let becomes = user.map(|user| Become::new(user, Default::default())).transpose();
        let mistake = match (&case.template, &filled) {
            (Some(name), None) => Some(format!("the policy has no template {name:?}")),
            (_, Some(Err(error))) => Some(error.to_string()),
            (_, _) if let Err(error) = &becomes => Some(error.to_string()),
            (_, _) => None,
        };
        let becomes = becomes.unwrap_or_default();
        let endpoint = match &case.host {
            Some(host) => {
                let place = CallPlace {
                    host,
                    becomes: becomes.as_ref(),
                };
                Some(self.endpoint_of(place).await)
            }
            None => None,
        };
        let request = PolicyRequest {
            caller: &case.caller,
            verb: case.verb,
            endpoint: endpoint.as_ref(),
            command: Some(match &case.template {
                Some(name) => CommandSource::Template(name),
                None => CommandSource::Free,
            }),
            target: case.target.as_deref(),
            minute: case.at.unwrap_or_else(this_minute),
        };
        let mut explanation = Explanation::of(&policy.decide(&request), endpoint.as_ref());
        if let Some(template) = template {
            explanation.approval = explanation.approval.max(template.approval);
            if let Some(Ok(values)) = &filled {
                explanation.command = Some(template.command_with(values));
            }
        }
        if explanation.decision == ExpectedDecision::Allow
            && explanation.approval != ApprovalFrom::None
        {
            explanation.decision = ExpectedDecision::Approval;
        }
        let needed = case.verb.needed_role();
        let mistake = if case.caller.role < needed {
            Some(format!("{} needs the role {needed}", case.verb))
        } else {
            mistake
        };
        if mistake.is_some() {
            explanation.decision = ExpectedDecision::Deny;
        }
        explanation.mistake = mistake;
        Some(Ok(explanation))
    }

    /// Decides on all test cases of the policy file. `None` without a policy.
    ///
    /// # Errors
    /// If the policy file can't be used.
    pub(crate) async fn test(&self) -> Option<Result<Vec<CaseResult>, Arc<PolicyFileError>>> {
        let loaded = match self.policy_in_force().await? {
            Ok(loaded) => loaded,
            Err(error) => return Some(Err(error)),
        };
        let mut results = Vec::new();
        for case in loaded.policy.cases() {
            match self.explain(case).await? {
                Ok(explanation) => results.push(CaseResult {
                    case: case.clone(),
                    explanation,
                }),
                Err(error) => return Some(Err(error)),
            }
        }
        Some(Ok(results))
    }
}

impl Explanation {
    fn of(decision: &PolicyDecision<'_>, endpoint: Option<&MachineAccount>) -> Self {
        let (decided, rules, approval, limits) = match decision {
            PolicyDecision::Allowed(permits) => (
                ExpectedDecision::Allow,
                permits.iter().map(|permit| permit.rule.to_owned()).collect(),
                permits[0].approval,
                permits[0].limits,
            ),
            PolicyDecision::Denied(rules) => (
                ExpectedDecision::Deny,
                rules.iter().map(|rule| (*rule).to_owned()).collect(),
                ApprovalFrom::None,
                RuleLimits::default(),
            ),
            PolicyDecision::NotAllowed => (
                ExpectedDecision::Deny,
                Vec::new(),
                ApprovalFrom::None,
                RuleLimits::default(),
            ),
        };
        let endpoint = endpoint.cloned().unwrap_or_default();
        let jumps = endpoint.jumps.iter().flat_map(|jump| jump.names().to_vec());
        Self {
            decision: decided,
            rules,
            approval,
            mistake: None,
            command: None,
            machine: endpoint.machine.names().to_vec(),
            also_known_as: endpoint.machine.other_names().to_vec(),
            tags: endpoint.machine.tags().to_vec(),
            users: endpoint.users.clone(),
            jumps: jumps.collect(),
            jobs: limits.jobs,
            starts_per_minute: limits.starts_per_minute,
            timeout_s: limits.timeout.map(|limit| limit.as_secs()),
            bytes: limits.bytes,
        }
    }
}
