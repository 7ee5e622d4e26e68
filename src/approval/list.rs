//! The list of approvals: who may ask, vote and go through, and when.

use serde::{Deserialize, Serialize};

use super::approval::{Approval, ApprovalState, Vote};

/// All approvals of a server or cluster. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalList {
    approvals: Vec<Approval>,
}

/// A call for which an approval is needed.
#[derive(Clone, Debug)]
pub struct Ask {
    /// The id of the approval, if there is none for this call yet.
    pub id: String,
    /// The call, as canonical JSON.
    pub call: String,
    /// SHA-256 of that text.
    pub sha256: String,
    /// The caller.
    pub asker: String,
    /// Why it is needed, in the caller's words.
    pub reason: Option<String>,
    /// The rule or template that asks for it.
    pub rule: String,
    /// The host, as named by the caller.
    pub host: String,
    /// SHA-256 of the policy file.
    pub policy: String,
    /// Number of callers who have to agree.
    pub needed: u32,
    /// Whether a repetition of the call returns the first one's job.
    pub has_idempotency_key: bool,
}

/// The approval of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A new one waits for approvers.
    Asked(Approval),
    /// It waits for approvers.
    Pending(Approval),
    /// The call may go through. The approval is used up now.
    Passed(Approval),
    /// An approver has refused it.
    Denied(Approval),
    /// Nobody answered in time. The next call asks again.
    Expired(Approval),
    /// The call went through before, and has started this job.
    Repeated {
        /// The approval.
        id: String,
        /// The job.
        job: String,
    },
}

/// A caller asks for too many approvals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} approvals wait already")]
pub struct TooManyApprovals(pub usize);

/// Why a vote does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CantVote {
    /// There is no such approval.
    #[error("no approval has the id {0:?}")]
    Unknown(String),
    /// It does not wait for votes any more.
    #[error("the approval {id} is {} already", .state.as_str())]
    Closed {
        /// The approval.
        id: String,
        /// Its state.
        state: ApprovalState,
    },
    /// The voter has voted already.
    #[error("{by} has voted on {id} already, and another approver has to agree, too")]
    Again {
        /// The approval.
        id: String,
        /// The voter.
        by: String,
    },
    /// The voter is the asker.
    #[error("{by} has asked for {id}, and another caller has to decide")]
    OwnCall {
        /// The approval.
        id: String,
        /// The voter.
        by: String,
    },
}

/// Time for approvers to answer, and then for the asker to repeat the call, in milliseconds.
pub const APPROVAL_LIFETIME: u64 = 10 * 60 * 1000;
/// Time for which an approval that is over is kept.
const KEPT: u64 = 24 * 3600 * 1000;
/// Maximum approvals of one caller that wait, and maximum approvals in the list.
const MOST_PENDING: usize = 20;
const MOST_KEPT: usize = 500;

impl ApprovalList {
    /// All approvals, in the order in which they were asked for.
    pub fn approvals(&self) -> &[Approval] {
        &self.approvals
    }

    /// The approval with an id.
    pub fn get(&self, id: &str) -> Option<&Approval> {
        self.approvals.iter().find(|approval| approval.id == id)
    }

    /// Finds the approval of a call, and uses it up if it is agreed to. Asks for one if there is
    /// none.
    ///
    /// # Errors
    /// If the caller asks for too many.
    pub fn pass(&mut self, ask: &Ask, now: u64) -> Result<Found, TooManyApprovals> {
        let newest = self
            .approvals
            .iter_mut()
            .rev()
            .find(|approval| approval.asker == ask.asker && approval.sha256 == ask.sha256);
        if let Some(approval) = newest
            && let Some(found) = approval.found_by(ask, now)
        {
            return Ok(found);
        }
        self.add(ask, now).map(Found::Asked)
    }

    fn add(&mut self, ask: &Ask, now: u64) -> Result<Approval, TooManyApprovals> {
        let is_open = |approval: &Approval| approval.state(now) == ApprovalState::Pending;
        self.approvals
            .retain(|approval| now < approval.expires_at.saturating_add(KEPT) || is_open(approval));
        let pending = self
            .approvals
            .iter()
            .filter(|approval| approval.asker == ask.asker && is_open(approval))
            .count();
        if pending >= MOST_PENDING {
            return Err(TooManyApprovals(pending));
        }
        if self.approvals.len() >= MOST_KEPT {
            // The oldest that is over. If all are open, nobody may ask.
            let over = self.approvals.iter().position(|approval| {
                let state = approval.state(now);
                !matches!(state, ApprovalState::Pending | ApprovalState::Approved)
            });
            self.approvals.remove(over.ok_or(TooManyApprovals(MOST_KEPT))?);
        }
        let approval = Approval {
            id: ask.id.clone(),
            call: ask.call.clone(),
            sha256: ask.sha256.clone(),
            asker: ask.asker.clone(),
            reason: ask.reason.clone(),
            rule: ask.rule.clone(),
            host: ask.host.clone(),
            policy: ask.policy.clone(),
            needed: ask.needed,
            asked_at: now,
            expires_at: now.saturating_add(APPROVAL_LIFETIME),
            votes: Vec::new(),
            used_at: None,
            job: None,
            is_expiry_told: false,
        };
        self.approvals.push(approval.clone());
        Ok(approval)
    }

    /// Whether a vote would count.
    ///
    /// # Errors
    /// Why it would not.
    pub fn check_vote(&self, id: &str, by: &str, now: u64) -> Result<&Approval, CantVote> {
        // Cut, because the caller chose the id and may have sent any text.
        let unknown = || CantVote::Unknown(id.chars().take(64).collect());
        let approval = self.get(id).ok_or_else(unknown)?;
        let state = approval.state(now);
        let id = id.to_owned();
        let by = by.to_owned();
        if state != ApprovalState::Pending {
            return Err(CantVote::Closed { id, state });
        }
        if approval.asker == by {
            return Err(CantVote::OwnCall { id, by });
        }
        if approval.votes.iter().any(|vote| vote.by == by) {
            return Err(CantVote::Again { id, by });
        }
        Ok(approval)
    }

    /// Counts a vote. One that refuses is enough to refuse the call.
    ///
    /// # Errors
    /// Why it does not count.
    pub fn vote(&mut self, id: &str, vote: Vote, now: u64) -> Result<Approval, CantVote> {
        self.check_vote(id, &vote.by, now)?;
        let found = self.approvals.iter_mut().find(|approval| approval.id == id);
        let approval = found.expect("it was checked");
        let agrees = vote.agrees;
        approval.votes.push(vote);
        if !agrees || approval.has_enough_votes() {
            // From here on the asker has time to repeat the call, and to learn what was decided.
            approval.expires_at = now.saturating_add(APPROVAL_LIFETIME);
        }
        Ok(approval.clone())
    }

    /// Gives an approval back: the call was not performed for another reason.
    pub fn give_back(&mut self, id: &str) {
        if let Some(approval) = self.approvals.iter_mut().find(|approval| approval.id == id) {
            approval.used_at = None;
        }
    }

    /// Notes the job that an approved call has started.
    pub fn note_job(&mut self, id: &str, job: &str) {
        if let Some(approval) = self.approvals.iter_mut().find(|approval| approval.id == id) {
            approval.job = Some(job.to_owned());
        }
    }
}

impl Approval {
    /// What this approval means for a call. `None` if the call has to ask again.
    fn found_by(&mut self, ask: &Ask, now: u64) -> Option<Found> {
        match self.state(now) {
            ApprovalState::Pending => Some(Found::Pending(self.clone())),
            ApprovalState::Approved => {
                self.used_at = Some(now);
                Some(Found::Passed(self.clone()))
            }
            // For a while: an agent must not ask again and again until someone agrees.
            ApprovalState::Denied if now < self.expires_at => Some(Found::Denied(self.clone())),
            ApprovalState::Expired if !self.is_expiry_told => {
                self.is_expiry_told = true;
                Some(Found::Expired(self.clone()))
            }
            ApprovalState::Used if ask.has_idempotency_key => {
                self.job.clone().map(|job| Found::Repeated {
                    id: self.id.clone(),
                    job,
                })
            }
            ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Used => None,
        }
    }
}

#[cfg(test)]
mod tests;
