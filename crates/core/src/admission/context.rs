//! The caller of a call, and its circumstances.

use std::net::IpAddr;
use std::time::Duration;

use super::rights::Rights;
use sshjobs_job::{Become, Caller, Scope};

/// Who calls, from where, and as whom on the host. A handle has one, and another handle is the same
/// with another context.
#[derive(Clone, Debug)]
pub struct CallContext {
    /// The caller.
    pub caller: Caller,
    /// Rights of the caller.
    pub rights: Rights,
    /// The address from which the caller has called, for the audit log. `None` for one of this machine.
    pub address: Option<IpAddr>,
    /// Time that a call waits for approvers, at most and by default 20 seconds.
    pub approval_wait: Duration,
    /// The user as whom commands run and files are used, if not the account that logs in.
    pub becomes: Option<Become>,
}

/// Longest wait for approvers. Less than clients wait for a call.
pub(super) const APPROVAL_WAIT: Duration = Duration::from_secs(20);

impl CallContext {
    /// A call of this machine, as the account that logs in.
    pub fn new(caller: Caller, rights: Rights) -> Self {
        Self {
            caller,
            rights,
            address: None,
            approval_wait: APPROVAL_WAIT,
            becomes: None,
        }
    }

    /// The callers whose jobs this caller sees.
    pub(crate) fn scope(&self) -> Scope {
        if self.rights.role.sees_all_jobs() {
            Scope::All
        } else {
            Scope::Of(self.caller.clone())
        }
    }
}
