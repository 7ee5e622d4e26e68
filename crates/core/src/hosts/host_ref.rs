use std::fmt;

use sshjobs_job::{Caller, Job};

/// A host as one caller reaches it. If the operator's credentials work there, all callers share its
/// connections. Otherwise the caller has its own, with its own answers to prompts.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostRef {
    /// The caller.
    pub caller: Caller,
    /// The host, as named by the caller.
    pub name: String,
}

impl HostRef {
    /// The host of a job, as its caller reaches it.
    pub fn of(job: &Job) -> Self {
        Self {
            caller: job.caller.clone(),
            name: job.spec.host.clone(),
        }
    }
}

impl fmt::Display for HostRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
