//! The verbs about approvals: list them, and answer one.

use std::collections::BTreeSet;
use std::time::SystemTime;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::Error;
use crate::{Code, Service};
use sshjobs_core::jobs::{Approval, ApprovalState, NewVote, timestamp_of};

/// List approvals.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalsRequest {
    /// Also those that are decided, used or expired.
    #[serde(default)]
    pub all: bool,
}

/// Answer an approval.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct VoteRequest {
    /// The answer.
    pub decision: ApproverAnswer,
    /// Why, for the asker and the audit log.
    #[serde(default)]
    #[schemars(length(max = 200))]
    pub reason: Option<String>,
}

/// The answer of an approver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ApproverAnswer {
    /// The call may be performed.
    Approve,
    /// The call is refused.
    Deny,
}

/// Approvals, in the order in which they were asked for.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalsReply {
    /// Approvals that the caller asked for. An approver also sees those on the hosts of its token.
    pub approvals: Vec<ApprovalEntry>,
}

/// A call that someone has to agree to. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ApprovalEntry {
    /// Its id.
    pub id: String,
    /// Its state now.
    #[schemars(with = "String", extend("enum" = ["pending", "approved", "denied", "expired", "used"]))]
    pub state: ApprovalState,
    /// The caller who asks.
    pub asker: String,
    /// The host, as named by the asker.
    pub host: String,
    /// Why it is needed, in the asker's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule or template of the policy that asks.
    pub rule: String,
    /// Everything that decides about the effect of the call.
    #[schemars(extend("additionalProperties" = true))]
    pub call: Map<String, Value>,
    /// SHA-256 of the call as canonical JSON (RFC 8785), in hexadecimal.
    pub sha256: String,
    /// Number of callers who have to agree.
    pub needed: u32,
    /// Time of the first call.
    pub asked_at: u64,
    /// Deadline: for votes while it is pending, then for the call.
    pub expires_at: u64,
    /// What approvers said.
    pub votes: Vec<VoteEntry>,
    /// What differs from the asker's last approved call of this verb on this host. Absent if none was approved in the
    /// last day, and in the reply to a vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<Comparison>,
    /// The job that the call has started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
}

/// A call beside an earlier one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Comparison {
    /// Id of the earlier call's approval.
    pub id: String,
    /// When the earlier call was asked for, in milliseconds since the Unix epoch.
    pub asked_at: u64,
    /// The fields of the call that differ. Empty if it is the same call again.
    pub changes: Vec<CallChange>,
}

/// A field of a call that differs from that of an earlier one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CallChange {
    /// Its name.
    pub field: String,
    /// Its earlier value. Absent if the earlier call had none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<Value>,
    /// Its value now. Absent if the call has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub now: Option<Value>,
}

/// What an approver said.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct VoteEntry {
    /// The approver.
    pub by: String,
    /// The answer.
    pub decision: ApproverAnswer,
    /// Why, in the approver's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of the answer.
    pub at: u64,
}

/// Longest reason, in characters.
const LONGEST_REASON: usize = 200;

impl ApprovalEntry {
    fn of(approval: Approval) -> Self {
        Self {
            state: approval.state(timestamp_of(SystemTime::now())),
            // It is an object: the library has written it.
            call: serde_json::from_str(&approval.call).unwrap_or_default(),
            id: approval.id,
            asker: approval.asker,
            host: approval.host,
            reason: approval.reason,
            rule: approval.rule,
            sha256: approval.sha256,
            needed: approval.needed,
            asked_at: approval.asked_at,
            expires_at: approval.expires_at,
            votes: approval
                .votes
                .into_iter()
                .map(|vote| VoteEntry {
                    by: vote.by,
                    decision: if vote.agrees {
                        ApproverAnswer::Approve
                    } else {
                        ApproverAnswer::Deny
                    },
                    reason: vote.reason,
                    at: vote.at,
                })
                .collect(),
            job_id: approval.job,
            compared: None,
        }
    }

    /// Entries of approvals, in the same order, each compared with the last one before it that was approved.
    fn compared(approvals: Vec<Approval>) -> Vec<Self> {
        let mut entries: Vec<Self> = Vec::with_capacity(approvals.len());
        for approval in approvals {
            let mut entry = Self::of(approval);
            let earlier = entries.iter().rev().find(|earlier| {
                earlier.is_approved()
                    && earlier.asker == entry.asker
                    && earlier.host == entry.host
                    && earlier.call.get("verb") == entry.call.get("verb")
            });
            entry.compared = earlier.map(|earlier| Comparison::of(earlier, &entry));
            entries.push(entry);
        }
        entries
    }

    fn is_approved(&self) -> bool {
        matches!(self.state, ApprovalState::Approved | ApprovalState::Used)
    }
}

impl Comparison {
    fn of(earlier: &ApprovalEntry, now: &ApprovalEntry) -> Self {
        let fields: BTreeSet<&String> = earlier.call.keys().chain(now.call.keys()).collect();
        let differs = |field: &str| earlier.call.get(field) != now.call.get(field);
        // The hash of all settings differs with every other field. It is news only if it alone differs.
        let has_visible_change = fields
            .iter()
            .any(|field| !["settings", "policy"].contains(&field.as_str()) && differs(field));
        let fields = fields.into_iter().filter(|field| *field != "settings" || !has_visible_change);
        let changes = fields.filter_map(|field| {
            let (before, now) = (earlier.call.get(field), now.call.get(field));
            (before != now).then(|| CallChange {
                field: field.clone(),
                before: before.cloned(),
                now: now.cloned(),
            })
        });
        Self {
            id: earlier.id.clone(),
            asked_at: earlier.asked_at,
            changes: changes.collect(),
        }
    }
}

impl Service {
    /// Approvals that the caller asked for. An approver also sees those on the hosts of its token.
    pub async fn approvals(&self, request: ApprovalsRequest) -> Result<ApprovalsReply, Error> {
        let approvals = ApprovalEntry::compared(self.library().approvals().await?);
        Ok(ApprovalsReply {
            approvals: approvals
                .into_iter()
                .filter(|entry| request.all || entry.state == ApprovalState::Pending)
                .collect(),
        })
    }

    /// One approval that the caller may see.
    pub async fn approval(&self, id: &str) -> Result<ApprovalEntry, Error> {
        let approvals = ApprovalEntry::compared(self.library().approvals().await?);
        approvals.into_iter().find(|known| known.id == id).ok_or_else(|| {
            let shown: String = id.chars().take(64).collect();
            Error::new(
                Code::NotFound,
                format!("no approval has the id {shown:?}"),
                "`sshjobs approvals --all` lists them",
            )
        })
    }

    /// Answers an approval of another caller.
    pub async fn vote(&self, id: &str, request: VoteRequest) -> Result<ApprovalEntry, Error> {
        let reason = request.reason.as_deref().unwrap_or_default();
        if reason.chars().count() > LONGEST_REASON {
            return Err(Error::invalid(
                format!("the reason is longer than {LONGEST_REASON} characters"),
                "shorten it, or omit it",
            ));
        }
        let ballot = NewVote {
            id: id.to_owned(),
            agrees: request.decision == ApproverAnswer::Approve,
            reason: request.reason,
        };
        Ok(ApprovalEntry::of(self.library().vote(&ballot).await?))
    }
}
