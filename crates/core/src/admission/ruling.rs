//! A decision on a call.

use std::sync::Arc;

use super::policy_in_force::LoadedPolicy;
use super::refusal::PolicyRefusal;
use sshjobs_job::JobId;
use sshjobs_policy::{MachineAccount, RuleLimits};

/// A decision on a call, and its reasons.
pub(super) struct Ruling {
    pub(super) loaded: Arc<LoadedPolicy>,
    /// The account and machine, if they were found out.
    pub(super) endpoint: Option<MachineAccount>,
    /// The rules of which any allows the call, at least one; or why it is refused.
    pub(super) verdict: Result<Vec<Allowance>, Box<PolicyRefusal>>,
    /// The approval that the call has used up.
    pub(super) approval: Option<Used>,
    /// Whether the audit log has it already.
    pub(super) is_recorded: bool,
}

/// A rule that allows a call.
#[derive(Clone, Debug)]
pub(super) struct Allowance {
    pub(super) rule: String,
    pub(super) limits: RuleLimits,
}

/// The approval by which a call goes through.
#[derive(Clone, Debug)]
pub(super) enum Used {
    /// The person behind the caller's client has agreed.
    ByClient,
    /// Approvers have agreed.
    ByApprovers {
        /// The id of the approval.
        id: String,
        /// Time at which it was used, in milliseconds since the Unix epoch.
        used_at: Option<u64>,
    },
    /// The same call has used it before, with the same idempotency key. Nothing may be started.
    Repetition(EarlierStart),
}

/// The start that an approval was used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EarlierStart {
    /// The id of the approval.
    pub(crate) approval: String,
    /// The job, which may have failed to start, or be forgotten.
    pub(crate) job: JobId,
}

impl Used {
    /// How the audit log names it.
    pub(super) fn as_str(&self) -> &str {
        match self {
            Self::ByClient => "client",
            Self::ByApprovers { id, .. } => id,
            Self::Repetition(earlier) => &earlier.approval,
        }
    }
}

impl Ruling {
    /// Names of the rules that allow the call.
    pub(super) fn rules(&self) -> Vec<String> {
        let allowances = self.verdict.as_deref().unwrap_or_default();
        allowances.iter().map(|allowance| allowance.rule.clone()).collect()
    }

    /// The same decision, for another reason.
    pub(super) fn refused(self, refusal: Box<PolicyRefusal>) -> Self {
        Self {
            verdict: Err(refusal),
            ..self
        }
    }
}
