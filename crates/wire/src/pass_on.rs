//! Calls that another replica of the cluster performs, because it has the host or the job.

use std::net::IpAddr;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;

use crate::error::{Code, Error};
use sshjobs_core::jobs::{Caller, Rights};

/// Performs verbs at other replicas.
pub trait PassOn: Send + Sync {
    /// Performs a verb at a replica, for a caller whose rights were found here. Dropping the future
    /// cancels the call there.
    fn call<'a>(
        &'a self,
        replica: &'a str,
        passed: PassedCall,
    ) -> BoxFuture<'a, Result<Value, Error>>;
}

/// A call that is passed on. Has no `Debug`, because its request may contain secrets.
pub struct PassedCall {
    /// Who calls.
    pub caller: Caller,
    /// The caller's rights.
    pub rights: Rights,
    /// The address from which it has called. `None` for a caller on this machine.
    pub address: Option<IpAddr>,
    /// Maximum time to wait for approvers.
    pub approval_wait: Duration,
    /// The verb.
    pub verb: &'static str,
    /// Its request.
    pub request: Value,
}

/// The error for a call that another replica should have performed.
pub fn not_passed_on(replica: &str, why: &dyn std::fmt::Display) -> Error {
    Error::new(
        Code::Unreachable,
        format!("the call can't be performed at the replica {replica}: {why}"),
        "try again in some seconds: if it has died, another one takes its hosts over",
    )
    .retryable()
}
