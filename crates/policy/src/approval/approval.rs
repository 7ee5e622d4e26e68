//! One approval: the call, the votes on it, and its state.

use serde::{Deserialize, Serialize};

/// A call that someone has to agree to, with the votes on it. Times are in milliseconds since the Unix
/// epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Approval {
    /// Its id.
    pub id: String,
    /// The call, as canonical JSON of an [`ExactCall`](super::ExactCall).
    pub call: String,
    /// SHA-256 of that text, in hexadecimal.
    pub sha256: String,
    /// The caller who asks.
    pub asker: String,
    /// Why it is needed, in the asker's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The rule or template of the policy that asks for it.
    pub rule: String,
    /// The host, as named by the asker.
    pub host: String,
    /// SHA-256 of the policy file, in hexadecimal.
    pub policy: String,
    /// Number of callers who have to agree.
    pub needed: u32,
    /// Time of the first call.
    pub asked_at: u64,
    /// Deadline: for votes while it is pending, then for the call.
    pub expires_at: u64,
    /// Answers of approvers, in order.
    #[serde(default)]
    pub votes: Vec<Vote>,
    /// Time at which the call was let through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<u64>,
    /// The idempotency key of the call that was let through.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_with_key: Option<String>,
    /// The job that the call starts. Set when the call is let through, before it starts anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// Whether its expiry was reported to the asker.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_expiry_reported: bool,
}

/// The answer of an approver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vote {
    /// The approver.
    pub by: String,
    /// Whether the approver agrees.
    pub agrees: bool,
    /// Why, in the approver's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Time of the vote.
    pub at: u64,
}

/// The state of an approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApprovalState {
    /// It waits for approvers.
    Pending,
    /// Enough approvers agree, and the call was not repeated yet.
    Approved,
    /// An approver has refused.
    Denied,
    /// No approver answered in time, or the call was not repeated in time.
    Expired,
    /// The call was let through.
    Used,
}

impl ApprovalState {
    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Approved => "approved",
            Self::Denied => "denied",
            Self::Expired => "expired",
            Self::Used => "used",
        }
    }
}

impl Approval {
    /// The state at a time.
    pub fn state(&self, now: u64) -> ApprovalState {
        if self.used_at.is_some() {
            ApprovalState::Used
        } else if self.refusal().is_some() {
            ApprovalState::Denied
        } else if now >= self.expires_at {
            ApprovalState::Expired
        } else if self.has_enough_votes() {
            ApprovalState::Approved
        } else {
            ApprovalState::Pending
        }
    }

    /// The vote that refuses it.
    pub fn refusal(&self) -> Option<&Vote> {
        self.votes.iter().find(|vote| !vote.agrees)
    }

    pub(super) fn has_enough_votes(&self) -> bool {
        let agreeing = self.votes.iter().filter(|vote| vote.agrees).count();
        u64::try_from(agreeing).is_ok_and(|agreeing| agreeing >= u64::from(self.needed))
    }
}
