//! State of the process and its dependencies, for readiness, metrics and alerts.

use std::time::Duration;

use tokio::time::timeout;

use super::door::Door;

/// State of the process's dependencies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Health {
    /// Why nothing can be stored, in words.
    pub store_trouble: Option<String>,
    /// Why the policy file that is there now is not in force, in words.
    pub policy_trouble: Option<String>,
    /// Whether the audit log that the policy names can't be written.
    pub is_audit_failing: bool,
    /// Approvals that wait for a vote.
    pub approvals_waiting: usize,
    /// Notifications that were given up lately.
    pub notifications_given_up: usize,
    /// Hosts whose last connection has failed.
    pub hosts_failing: usize,
}

/// Time limit for a count that is read from the store, which may hang.
const COUNT_TIME: Duration = Duration::from_secs(1);

/// A count. 0 if the store does not answer.
async fn in_time(count: impl Future<Output = usize>) -> usize {
    timeout(COUNT_TIME, count).await.unwrap_or(0)
}

impl Door {
    pub(super) async fn health(&self) -> Health {
        let policy = self.admission.judge().state().await;
        let inside = &self.inside;
        Health {
            store_trouble: inside.runner.store_trouble(),
            is_audit_failing: policy.as_ref().is_some_and(|state| state.is_log_failing),
            policy_trouble: policy.and_then(|state| state.trouble),
            approvals_waiting: in_time(self.admission.judge().approvals_waiting()).await,
            notifications_given_up: in_time(inside.notifier.given_up()).await,
            hosts_failing: inside.last_errors.count(),
        }
    }
}
