//! Explains the decision of the policy on a hypothetical call.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::asking::RequiredApproval;
use super::call::{CallContent, CallToDecide, HostAct, StartToDecide};
use super::judge::{Judge, permits};
use super::machines::CallPlace;
use super::policy_in_force::{LoadedPolicy, PolicyFileError};
use super::refusal::PolicyWhy;
use super::rights::Rights;
use super::ruling::Ruling;
use sshjobs_job::{Become, BecomeMethod, Caller, Draft, JobSpec};
use sshjobs_policy::{ApprovalFrom, ExpectedDecision, PolicyCase, Verb};

/// The decision of the policy on a call, and its reasons.
#[derive(Clone, Debug, Serialize)]
pub struct Explanation {
    /// The decision.
    pub decision: ExpectedDecision,
    /// Names of the rules that decide. Empty if no rule allows the call.
    pub rules: Vec<String>,
    /// Who has to agree.
    pub approval: ApprovalFrom,
    /// Why the call fails before any rule decides: a role, a template, or a machine that is not certain.
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
        let filled = FilledCase::of(case, &loaded);
        let caller = Caller::new(&case.caller.name);
        let rights = Rights {
            role: case.caller.role,
            claims: case.caller.claims.clone(),
            ..Rights::everywhere(case.caller.role)
        };
        let spec = filled.spec(case.host.as_deref());
        let on = case.host.as_deref().map(|host| filled.on(case, host, spec.as_ref()));
        let call = CallToDecide {
            caller: &caller,
            address: None,
            rights: &rights,
            verb: case.verb,
            approval_wait: Duration::ZERO,
            minute: case.at,
            on,
        };
        // As for a call that is made, but nothing is recorded, and no person is asked.
        let (mut ruling, required) = self.decide_at_once(loaded, call).await;
        if ruling.endpoint.is_none()
            && let Some(place) = call.place()
        {
            // A policy without machines does not look for it. The operator wants to see it.
            ruling.endpoint = Some(self.endpoint_of(place).await);
        }

        let mut explanation = Explanation::of(&ruling, required.as_ref());
        // All rules that allow it, also those that ask for more than the first.
        if ruling.verdict.is_ok()
            && let Ok(rules) = permits(&ruling.loaded, call, ruling.endpoint.as_ref())
        {
            explanation.rules = rules.iter().map(|rule| rule.rule.to_owned()).collect();
        }
        explanation.command = filled.command;
        let needed = case.verb.needed_role();
        let lacks_role =
            (rights.role < needed).then(|| format!("{} needs the role {needed}", case.verb));
        if let Some(mistake) = lacks_role.or(filled.mistake) {
            explanation.decision = ExpectedDecision::Deny;
            explanation.mistake = Some(mistake);
        }
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

/// A case, with its template filled.
#[derive(Default)]
struct FilledCase {
    /// The user as whom the command runs.
    becomes: Option<Become>,
    /// The command that the template makes.
    command: Option<String>,
    /// Why there is no such command, or no such user.
    mistake: Option<String>,
}

impl FilledCase {
    fn of(case: &PolicyCase, loaded: &LoadedPolicy) -> Self {
        let mut filled = Self::default();
        let template = case.template.as_deref().map(|name| (name, loaded.policy.template(name)));
        match template {
            Some((name, None)) => {
                filled.mistake = Some(format!("the policy has no template {name:?}"));
            }
            Some((_, Some(template))) => match template.accept(&case.params) {
                Ok(values) => filled.command = Some(template.command_with(&values)),
                Err(error) => filled.mistake = Some(error.to_string()),
            },
            None => {}
        }
        let template = template.and_then(|(_, template)| template);
        let user = template.and_then(|template| template.becomes.clone());
        let user = user.or_else(|| case.becomes.clone());
        match user.map(|user| Become::new(user, BecomeMethod::default())).transpose() {
            Ok(becomes) => filled.becomes = becomes,
            Err(error) => filled.mistake = filled.mistake.or_else(|| Some(error.to_string())),
        }
        filled
    }

    /// The job that the case would start on a host.
    fn spec(&self, host: Option<&str>) -> Option<JobSpec> {
        let command = self.command.as_deref().unwrap_or("true");
        let mut draft = Draft::new(host?, command);
        draft.becomes = self.becomes.clone();
        draft.try_into().ok()
    }

    /// The host of the case, and the act there.
    fn on<'a>(
        &'a self,
        case: &'a PolicyCase,
        host: &'a str,
        spec: Option<&'a JobSpec>,
    ) -> HostAct<'a> {
        let start = spec.map(|spec| StartToDecide {
            spec,
            job: None,
            idempotency_key: None,
            reason: None,
        });
        let starts = matches!(case.verb, Verb::Run | Verb::Spawn);
        HostAct {
            template: case.template.as_deref(),
            target: case.target.as_deref(),
            start: if starts { start } else { None },
            content: (case.verb == Verb::Write).then_some(CallContent::Stdin(b"")),
            ..HostAct::place(CallPlace {
                host,
                becomes: self.becomes.as_ref(),
            })
        }
    }
}

impl Explanation {
    fn of(ruling: &Ruling, required: Option<&RequiredApproval>) -> Self {
        let (decision, rules, mistake) = match &ruling.verdict {
            Ok(_) if required.is_some() => (ExpectedDecision::Approval, ruling.rules(), None),
            Ok(_) => (ExpectedDecision::Allow, ruling.rules(), None),
            Err(refusal) => {
                let rules = refusal.denying_rules().to_vec();
                let is_ruled = !rules.is_empty() || refusal.why == PolicyWhy::NotAllowed;
                let mistake = (!is_ruled).then(|| refusal.to_string());
                (ExpectedDecision::Deny, rules, mistake)
            }
        };
        let allowance = ruling.verdict.as_ref().ok().and_then(|allowances| allowances.first());
        let limits = allowance.map(|allowance| allowance.limits).unwrap_or_default();
        let endpoint = ruling.endpoint.clone().unwrap_or_default();
        let jumps = endpoint.jumps.iter().flat_map(|jump| jump.names().to_vec());
        Self {
            decision,
            rules,
            approval: required.map(|required| required.who).unwrap_or_default(),
            mistake,
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
