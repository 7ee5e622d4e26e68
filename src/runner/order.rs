use crate::job::{Caller, JobSpec};

/// A job that a caller wants.
pub struct Order {
    /// Whose it will be.
    pub caller: Caller,
    /// What the job is to be.
    pub spec: JobSpec,
    /// The idempotency key, if it has one.
    pub key: Option<Key>,
}

/// An idempotency key, and whose it is.
pub type Key = (Caller, String);

impl Order {
    /// The order of a caller.
    pub fn new(caller: &Caller, spec: JobSpec, key: Option<String>) -> Self {
        Self { caller: caller.clone(), spec, key: key.map(|key| (caller.clone(), key)) }
    }
}
