//! Lets approvers answer.

use std::net::IpAddr;

use super::approvals::{ApprovalsError, unix_ms};
use super::excluded::is_excluded_by_address;
use super::judge::Judge;
use super::rights::Rights;
use sshjobs_job::Caller;
use sshjobs_policy::PolicyCaller;
use sshjobs_policy::approval::{Approval, CantVote, Vote};
use sshjobs_policy::audit::Voted;

/// Who answers.
#[derive(Clone, Copy)]
pub(crate) struct Voter<'a> {
    pub(crate) caller: &'a Caller,
    /// The address from which the voter has called.
    pub(crate) address: Option<IpAddr>,
    pub(crate) rights: &'a Rights,
}

/// An answer to an approval.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewVote {
    /// The id of the approval.
    pub id: String,
    /// Whether the call may be performed.
    pub agrees: bool,
    /// Why, for the asker and the audit log.
    pub reason: Option<String>,
}

/// Why an answer does not count.
#[derive(Clone, Debug, thiserror::Error)]
pub enum VoteError {
    /// There is no policy, so nothing asks for approvals.
    #[error("there is no policy, so nothing waits for an approval")]
    NoPolicy,
    /// The policy file can't be used.
    #[error("the policy can't be used: {0}")]
    PolicyFile(String),
    /// The voter is not among the approvers of the policy.
    #[error("{0} is not among the approvers of the policy")]
    NotApprover(Caller),
    /// The approval is not open to this voter.
    #[error(transparent)]
    CantVote(#[from] CantVote),
    /// The policy has changed since the call, which then is another call.
    #[error("the policy has changed since {0} was asked for, which is void now")]
    Voided(String),
    /// The vote can't be recorded in the audit log.
    #[error("the vote can't be recorded: {0}")]
    NotRecorded(String),
    /// The approvals can't be read or stored.
    #[error("approvals can't be read or stored now")]
    Unusable,
}

impl From<ApprovalsError> for VoteError {
    fn from(error: ApprovalsError) -> Self {
        // A caller does not learn where they are stored.
        tracing::error!(%error, "approvals can't be used");
        Self::Unusable
    }
}

impl Voter<'_> {
    fn identity(&self) -> PolicyCaller {
        PolicyCaller {
            name: self.caller.as_str().to_owned(),
            role: self.rights.role,
            claims: self.rights.claims.clone(),
        }
    }
}

impl Judge {
    /// Approvals that the caller asked for. An approver also sees those on the hosts of its token.
    ///
    /// # Errors
    /// If the policy or the approvals can't be used.
    pub(crate) async fn approvals_seen_by(
        &self,
        voter: Voter<'_>,
    ) -> Result<Vec<Approval>, VoteError> {
        let Some(loaded) = self.policy_in_force().await else { return Ok(Vec::new()) };
        let loaded = loaded.map_err(|error| VoteError::PolicyFile(error.to_string()))?;
        let is_approver = loaded.policy.is_approver(&voter.identity());
        let list = self.approvals.list().await?;
        let mut seen = Vec::new();
        for approval in list.approvals() {
            let is_own = approval.asker == voter.caller.as_str();
            if is_own || is_approver && self.may_decide_on(voter, &approval.host).await {
                seen.push(approval.clone());
            }
        }
        Ok(seen)
    }

    /// Counts an approver's answer, once the audit log has it.
    ///
    /// # Errors
    /// Why it does not count.
    pub(crate) async fn vote(
        &self,
        voter: Voter<'_>,
        ballot: &NewVote,
    ) -> Result<Approval, VoteError> {
        let loaded = self.policy_in_force().await.ok_or(VoteError::NoPolicy)?;
        let loaded = loaded.map_err(|error| VoteError::PolicyFile(error.to_string()))?;
        if !loaded.policy.is_approver(&voter.identity()) {
            return Err(VoteError::NotApprover(voter.caller.clone()));
        }
        let by = voter.caller.as_str();
        let list = self.approvals.list().await?;
        let approval = list.check_vote(&ballot.id, by, unix_ms())?.clone();
        // As if it did not exist: the voter has no rights on the host.
        if !self.may_decide_on(voter, &approval.host).await {
            return Err(CantVote::Unknown(ballot.id.clone()).into());
        }
        if approval.policy != loaded.hash {
            return Err(VoteError::Voided(approval.id));
        }
        let reason = ballot.reason.clone();
        let voted = Voted {
            approval: approval.id.clone(),
            sha256: approval.sha256.clone(),
            asker: approval.asker.clone(),
            by: by.to_owned(),
            address: voter.address.map(|address| address.to_string()),
            agrees: ballot.agrees,
            reason: reason.clone(),
        };
        // First, so that no call goes through whose approval is not in the log.
        let recorded = self.auditor.record_vote(&loaded, voted).await;
        let recorded = recorded.map_err(VoteError::NotRecorded)?;
        let vote = Vote {
            by: by.to_owned(),
            agrees: ballot.agrees,
            reason,
            at: unix_ms(),
        };
        let counted = self.approvals.vote(&approval.id, vote).await;
        let counted = match counted {
            Ok(counted) => counted.map_err(VoteError::from),
            Err(error) => Err(error.into()),
        };
        if let (Err(error), Some(recorded)) = (&counted, recorded) {
            recorded.note_failure(error.to_string()).await;
        }
        counted
    }

    /// Whether a voter has rights on a host, also by its address.
    async fn may_decide_on(&self, voter: Voter<'_>, host: &str) -> bool {
        let book = self.hosts.book();
        let patterns = &voter.rights.hosts;
        patterns.contain(host, book.tags(host))
            && !is_excluded_by_address(patterns, book, host).await
    }
}
