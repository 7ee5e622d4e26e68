//! The list of approvals: who may ask, vote and go through, and when.

use serde::{Deserialize, Serialize};

use super::approval::{Approval, ApprovalState, Vote};
use super::exact_call::ExactCall;

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
    /// The key with which a repetition of the call returns the first one's job.
    pub idempotency_key: Option<String>,
    /// Id of the job that the call starts.
    pub job: Option<String>,
}

/// The approval of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ApprovalLookup {
    /// A new one waits for approvers.
    Asked(Approval),
    /// It waits for approvers.
    Pending(Approval),
    /// The call may go through. The approval is used up now.
    Passed(Approval),
    /// An approver has refused it.
    Denied(Approval),
    /// No approver answered in time. The next call asks again.
    Expired(Approval),
    /// The same call went through before, with this idempotency key. Its job is the answer, and nothing may
    /// be started.
    Repeated(Approval),
}

/// No room for another approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooManyApprovals {
    /// The caller has asked for too many.
    #[error(
        "the caller's pending approvals reach a limit: {MOST_PENDING}, or {MOST_PENDING_BYTES} bytes"
    )]
    OfCaller,
    /// All callers together have asked for too many.
    #[error(
        "the pending approvals of all callers reach a limit: {MOST_KEPT}, or {MOST_KEPT_BYTES} bytes"
    )]
    OfAll,
}

/// Why a vote does not count.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CantVote {
    /// There is no such approval.
    #[error("no approval has the id {0:?}")]
    Unknown(String),
    /// It does not wait for votes any more.
    #[error("the approval {id} does not wait for an answer any more: it is {}", .state.as_str())]
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

/// Time for approvers to answer, in milliseconds. The asker then has as long to repeat the call, and a
/// refusal stands as long.
pub const APPROVAL_LIFETIME: u64 = 10 * 60 * 1000;
/// Time for which an expiry is reported to the asker: a later call asks again at once.
const EXPIRY_REPORTED: u64 = 60 * 1000;
/// Time for which an approval that is over is kept.
const KEPT: u64 = 24 * 3600 * 1000;
/// Maximum pending approvals of one caller.
const MOST_PENDING: usize = 20;
/// Maximum bytes of the calls in them.
const MOST_PENDING_BYTES: usize = 32 << 10;
/// Maximum approvals in the list.
const MOST_KEPT: usize = 500;
/// Maximum bytes of the calls in them: the list is one message in NATS, of 256 KiB at least, and JSON
/// within JSON has twice the quotes.
const MOST_KEPT_BYTES: usize = 100 << 10;

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
    pub fn pass(&mut self, ask: &Ask, now: u64) -> Result<ApprovalLookup, TooManyApprovals> {
        let of_asker = self.approvals.iter_mut().filter(|approval| approval.asker == ask.asker);
        let mut newest = None;
        for approval in of_asker {
            if approval.was_used_for(ask) {
                return Ok(ApprovalLookup::Repeated(approval.clone()));
            }
            if approval.sha256 == ask.sha256 {
                newest = Some(approval);
            }
        }
        if let Some(approval) = newest
            && let Some(found) = approval.found_by(ask, now)
        {
            return Ok(found);
        }
        self.add(ask, now).map(ApprovalLookup::Asked)
    }

    /// Removes approvals that are over, until there is room for another one.
    fn make_room(&mut self, ask: &Ask, now: u64) -> Result<(), TooManyApprovals> {
        self.approvals.retain(|approval| {
            now < approval.expires_at.saturating_add(KEPT)
                || approval.state(now) == ApprovalState::Pending
        });
        let own = self.approvals.iter().filter(|approval| {
            approval.asker == ask.asker && approval.state(now) == ApprovalState::Pending
        });
        let own: Vec<usize> = own.map(Approval::bytes).collect();
        if own.len() >= MOST_PENDING
            || own.iter().sum::<usize>() + ask.call.len() > MOST_PENDING_BYTES
        {
            return Err(TooManyApprovals::OfCaller);
        }
        while self.approvals.len() >= MOST_KEPT
            || self.approvals.iter().map(Approval::bytes).sum::<usize>() + ask.call.len()
                > MOST_KEPT_BYTES
        {
            let oldest_over = self.approvals.iter().position(|approval| {
                !matches!(
                    approval.state(now),
                    ApprovalState::Pending | ApprovalState::Approved
                )
            });
            self.approvals.remove(oldest_over.ok_or(TooManyApprovals::OfAll)?);
        }
        Ok(())
    }

    fn add(&mut self, ask: &Ask, now: u64) -> Result<Approval, TooManyApprovals> {
        self.make_room(ask, now)?;
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
            used_with_key: None,
            job: None,
            is_expiry_reported: false,
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
            // The asker now has time to repeat the call, or to learn of the refusal.
            approval.expires_at = now.saturating_add(APPROVAL_LIFETIME);
        }
        Ok(approval.clone())
    }

    /// Gives an approval back that was used at this time: the call was not performed for another reason.
    pub fn give_back(&mut self, id: &str, used_at: Option<u64>) {
        let found = self
            .approvals
            .iter_mut()
            .find(|approval| approval.id == id && approval.used_at == used_at);
        if let Some(approval) = found {
            approval.used_at = None;
            approval.used_with_key = None;
            approval.job = None;
        }
    }

    /// Notes that an approved call has led to another job than the one it would have started.
    pub fn note_job(&mut self, id: &str, job: &str) {
        if let Some(approval) = self.approvals.iter_mut().find(|approval| approval.id == id) {
            approval.job = Some(job.to_owned());
        }
    }

    /// Notes that the call of an approval has no job: a repetition needs another approval.
    pub fn note_no_job(&mut self, id: &str) {
        if let Some(approval) = self.approvals.iter_mut().find(|approval| approval.id == id) {
            approval.used_with_key = None;
        }
    }
}

impl Approval {
    /// What this approval means for a call. `None` if the call has to ask again.
    fn found_by(&mut self, ask: &Ask, now: u64) -> Option<ApprovalLookup> {
        match self.state(now) {
            ApprovalState::Pending => Some(ApprovalLookup::Pending(self.clone())),
            ApprovalState::Approved => {
                self.used_at = Some(now);
                self.used_with_key.clone_from(&ask.idempotency_key);
                // From here on, so that no failure makes a repetition start a second job.
                self.job.clone_from(&ask.job);
                Some(ApprovalLookup::Passed(self.clone()))
            }
            // For a while: an agent must not ask again and again until someone agrees.
            ApprovalState::Denied if now < self.expires_at => {
                Some(ApprovalLookup::Denied(self.clone()))
            }
            ApprovalState::Expired
                if !self.is_expiry_reported
                    && now < self.expires_at.saturating_add(EXPIRY_REPORTED) =>
            {
                self.is_expiry_reported = true;
                Some(ApprovalLookup::Expired(self.clone()))
            }
            ApprovalState::Denied | ApprovalState::Expired | ApprovalState::Used => None,
        }
    }

    /// Whether it was used by a call with the same idempotency key that asks for the same.
    fn was_used_for(&self, ask: &Ask) -> bool {
        let has_same_key =
            ask.idempotency_key.is_some() && self.used_with_key == ask.idempotency_key;
        self.used_at.is_some()
            && self.job.is_some()
            && has_same_key
            && (self.sha256 == ask.sha256 || ExactCall::ask_for_the_same(&self.call, &ask.call))
    }

    /// Bytes of the texts that callers have chosen.
    fn bytes(&self) -> usize {
        let reasons = self.votes.iter().filter_map(|vote| vote.reason.as_ref()).chain(&self.reason);
        self.call.len() + reasons.map(String::len).sum::<usize>()
    }
}

#[cfg(test)]
mod tests;
