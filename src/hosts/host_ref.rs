use std::fmt;

use crate::job::{Caller, Job};

/// A host as one caller reaches it: over connections that all callers share where the operator's own credentials open it, else
/// over the caller's, with what it answered when a login asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostRef {
    /// Who.
    pub caller: Caller,
    /// The host, as the caller named it.
    pub name: String,
}

impl HostRef {
    /// The host of a job, as its caller reaches it.
    pub fn of(job: &Job) -> Self {
        Self { caller: job.caller.clone(), name: job.spec.host.clone() }
    }
}

impl fmt::Display for HostRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}
