//! Decides on a call. If a rule asks for an approval, asks for it and waits a while.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};

use super::approvals::{ApprovalRequest, ApprovalsError, question};
use super::auditor::Grounds;
use super::call::CallToDecide;
use super::judge::{Judge, permits};
use super::policy_in_force::{LoadedPolicy, PolicyInForce};
use super::refusal::{PolicyRefusal, PolicyWhy};
use super::ruling::{Allowance, EarlierStart, Ruling, Used};
use sshjobs_job::JobId;
use sshjobs_policy::approval::{Approval, ApprovalLookup, ExactCall};
use sshjobs_policy::{AllowingRule, ApprovalFrom, Verb};
use sshjobs_ssh::Question;

/// Who has to agree to a call.
#[derive(Clone, Debug)]
pub(super) struct RequiredApproval {
    pub(super) who: ApprovalFrom,
    /// The rule or template that asks.
    by: String,
    /// Number of callers who have to agree.
    needed: u32,
    /// The rules that allow the call then.
    pub(super) allowances: Vec<Allowance>,
}

/// The answer to a question.
enum AskingOutcome {
    /// The call may go through.
    Granted(Used),
    /// No answer yet.
    Pending {
        approval: Box<Approval>,
        /// Whether this call has asked first.
        is_new: bool,
    },
    /// The call is refused.
    Refused(PolicyWhy),
    /// The person behind the client has agreed just now. Meanwhile something may have changed.
    DecideAgain,
}

/// Time between two looks for an answer or a job that another process may store.
pub(crate) const LOOK_AGAIN: Duration = Duration::from_millis(500);

impl Judge {
    /// Decides on a call. If someone has to agree, asks them, and waits as long as the call does.
    ///
    /// # Errors
    /// If there is no policy to decide by.
    pub(super) async fn decide_or_ask(
        &self,
        policy: &PolicyInForce,
        call: CallToDecide<'_>,
    ) -> Result<Ruling, Box<PolicyRefusal>> {
        let give_up_at = Instant::now() + call.approval_wait;
        let mut client_agreed_to = None;
        // Each round decides again: the policy or the host's key may have changed meanwhile, and then
        // it is another call.
        loop {
            let loaded = self.loaded(policy, call).await?;
            let (ruling, required) = self.decide_at_once(loaded, call).await;
            let Some(required) = required else { return Ok(ruling) };

            let outcome = match self.approval_request(&ruling, call, &required).await {
                Ok(request) if required.who == ApprovalFrom::Client => {
                    self.ask_client(call, &request, &mut client_agreed_to).await
                }
                Ok(request) => self.ask_approvers(&request).await,
                Err(why) => AskingOutcome::Refused(why),
            };
            match outcome {
                AskingOutcome::Granted(used) => {
                    return Ok(Ruling {
                        verdict: Ok(required.allowances),
                        approval: Some(used),
                        ..ruling
                    });
                }
                AskingOutcome::Refused(why) => return Ok(ruling.refused(call.refused(why))),
                AskingOutcome::Pending { approval, is_new } => {
                    let refusal = call.refused(PolicyWhy::ApprovalPending {
                        id: approval.id,
                        asked_by: required.by,
                        expires_at: approval.expires_at,
                    });
                    if is_new {
                        self.record_question(&ruling, call, &refusal).await;
                    }
                    if Instant::now() >= give_up_at {
                        return Ok(Ruling {
                            // The log has the question, and its answer will be there, too.
                            is_recorded: true,
                            ..ruling.refused(refusal)
                        });
                    }
                    sleep(LOOK_AGAIN).await;
                }
                AskingOutcome::DecideAgain => {}
            }
        }
    }

    /// Decides on a call without asking a person. Also returns who has to agree to it.
    pub(super) async fn decide_at_once(
        &self,
        loaded: Arc<LoadedPolicy>,
        call: CallToDecide<'_>,
    ) -> (Ruling, Option<RequiredApproval>) {
        let endpoint = self.endpoint(&loaded, call).await;
        let mut required = None;
        let verdict = match &endpoint {
            Ok(endpoint) => {
                let permits = permits(&loaded, call, endpoint.as_ref());
                permits.map(|permits| {
                    required = required_approval(&loaded, call, &permits);
                    allowances(&permits)
                })
            }
            Err(refusal) => Err(refusal.clone()),
        };
        let ruling = Ruling {
            endpoint: endpoint.ok().flatten(),
            loaded,
            verdict,
            approval: None,
            is_recorded: false,
        };
        (ruling, required)
    }

    /// The approval that a call needs.
    ///
    /// # Errors
    /// If no person can be asked about such a call.
    async fn approval_request(
        &self,
        ruling: &Ruling,
        call: CallToDecide<'_>,
        required: &RequiredApproval,
    ) -> Result<ApprovalRequest, PolicyWhy> {
        let start = call.on.and_then(|on| on.start);
        let is_on_many = start.is_some_and(|start| start.spec.fleet.is_some());
        if is_on_many || call.on.is_some_and(|on| on.is_one_of_many) {
            return Err(PolicyWhy::CantAsk(
                "it acts on several hosts at once".to_owned(),
            ));
        }
        // A policy without machines may not have looked for it.
        let endpoint = match (&ruling.endpoint, call.place()) {
            (None, Some(place)) => Some(self.certain_endpoint(place).await?),
            (known, _) => known.clone(),
        };
        let mut exact = self.approvals.exact(call, endpoint.as_ref());
        exact.policy.clone_from(&ruling.loaded.hash);
        exact.host_keys = self.hosts.trusted_keys(&exact.host).await;
        Ok(ApprovalRequest {
            exact,
            idempotency_key: start.and_then(|start| start.idempotency_key).map(str::to_owned),
            job: start.and_then(|start| start.job).cloned(),
            reason: start.and_then(|start| start.reason).map(str::to_owned),
            rule: required.by.clone(),
            needed: required.needed,
        })
    }

    /// Asks the person behind the caller's client.
    async fn ask_client(
        &self,
        call: CallToDecide<'_>,
        request: &ApprovalRequest,
        agreed_to: &mut Option<ExactCall>,
    ) -> AskingOutcome {
        if agreed_to.as_ref() == Some(&request.exact) {
            return AskingOutcome::Granted(Used::ByClient);
        }
        if !self.hosts.can_ask(call.caller) {
            return AskingOutcome::Refused(PolicyWhy::CantAsk(
                "the client can't ask its user".to_owned(),
            ));
        }
        let text = match question(&request.exact) {
            Ok(text) => text,
            Err(error) => return AskingOutcome::Refused(PolicyWhy::CantAsk(error.to_string())),
        };
        let question = Question {
            host: request.exact.host.clone(),
            text,
            echo: true,
        };
        match self.hosts.confirm(call.caller, &question).await {
            Some(true) => {
                *agreed_to = Some(request.exact.clone());
                AskingOutcome::DecideAgain
            }
            Some(false) => AskingOutcome::Refused(PolicyWhy::ApprovalDenied {
                id: None,
                by: "the user of the client".to_owned(),
                reason: None,
            }),
            None => AskingOutcome::Refused(PolicyWhy::CantAsk(
                "the user of the client did not answer".to_owned(),
            )),
        }
    }

    async fn ask_approvers(&self, request: &ApprovalRequest) -> AskingOutcome {
        let found = match self.approvals.pass(request).await {
            Ok(found) => found,
            Err(error @ (ApprovalsError::TooLong(_) | ApprovalsError::TooLongToShow(_))) => {
                return AskingOutcome::Refused(PolicyWhy::CantAsk(error.to_string()));
            }
            Err(error @ ApprovalsError::TooMany(_)) => {
                return AskingOutcome::Refused(PolicyWhy::NoRoomToAsk(error.to_string()));
            }
            Err(error @ ApprovalsError::Shared(_)) => {
                // The caller does not learn where they are stored.
                tracing::error!(%error, "approvals can't be used");
                return AskingOutcome::Refused(PolicyWhy::ApprovalsUnusable);
            }
        };
        match found {
            ApprovalLookup::Asked(approval) => AskingOutcome::Pending {
                approval: Box::new(approval),
                is_new: true,
            },
            ApprovalLookup::Pending(approval) => AskingOutcome::Pending {
                approval: Box::new(approval),
                is_new: false,
            },
            ApprovalLookup::Passed(Approval { id, used_at, .. }) => {
                AskingOutcome::Granted(Used::ByApprovers { id, used_at })
            }
            ApprovalLookup::Repeated(Approval { id, job, .. }) => {
                let job = job.as_deref().map(JobId::from).expect("a repetition has a job");
                AskingOutcome::Granted(Used::Repetition(EarlierStart { approval: id, job }))
            }
            ApprovalLookup::Denied(approval) => {
                let vote = approval.refusal();
                AskingOutcome::Refused(PolicyWhy::ApprovalDenied {
                    by: vote.map_or_else(String::new, |vote| vote.by.clone()),
                    reason: vote.and_then(|vote| vote.reason.clone()),
                    id: Some(approval.id),
                })
            }
            ApprovalLookup::Expired(approval) => {
                AskingOutcome::Refused(PolicyWhy::ApprovalExpired { id: approval.id })
            }
        }
    }

    /// Records that a call waits for an approval.
    async fn record_question(
        &self,
        ruling: &Ruling,
        call: CallToDecide<'_>,
        refusal: &PolicyRefusal,
    ) {
        let PolicyWhy::ApprovalPending { id, .. } = &refusal.why else { return };
        let grounds = Grounds {
            endpoint: ruling.endpoint.as_ref(),
            decision: Err(refusal),
            approval: Some(id),
        };
        // The call is refused until it is approved, whether or not this is recorded.
        self.auditor.record(&ruling.loaded, call, grounds).await.ok();
    }
}

/// Who has to agree to a call that these rules allow. `None` if one of them allows it without.
fn required_approval(
    loaded: &LoadedPolicy,
    call: CallToDecide<'_>,
    permits: &[AllowingRule<'_>],
) -> Option<RequiredApproval> {
    let on = call.on?;
    // Whoever may start a job must be able to stop it.
    if call.verb == Verb::Signal {
        return None;
    }
    // To close stdin, or to resize a terminal, is part of the job that was approved. So is the input of
    // the session that has started it.
    if call.verb == Verb::Write && on.content.is_none() {
        return None;
    }
    // The one that asks the least comes first.
    let permit = permits.first()?;
    let of_template = on.start.and(on.template).and_then(|name| loaded.policy.template(name));
    let (who, by, needed) = match of_template {
        Some(template) if template.approval > permit.approval => {
            (template.approval, template.name.as_str(), 1)
        }
        Some(_) | None => (permit.approval, permit.rule, permit.approvals),
    };
    (who != ApprovalFrom::None).then(|| RequiredApproval {
        who,
        by: by.to_owned(),
        needed,
        allowances: allowances(permits),
    })
}

/// The rules that ask the least.
fn allowances(permits: &[AllowingRule<'_>]) -> Vec<Allowance> {
    let least = permits.first().map(|permit| permit.approval).unwrap_or_default();
    let free = permits.iter().filter(|permit| permit.approval == least);
    free.map(|permit| Allowance {
        rule: permit.rule.to_owned(),
        limits: permit.limits,
    })
    .collect()
}
