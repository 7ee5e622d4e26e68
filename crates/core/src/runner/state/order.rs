use sshjobs_job::{Caller, Job, JobId, JobSpec};

/// A caller's request for a job.
pub struct StartOrder {
    /// The id that the job gets.
    pub id: JobId,
    /// The caller who will own the job.
    pub caller: Caller,
    /// Specification of the job.
    pub spec: JobSpec,
    /// Idempotency key, if any.
    pub key: Option<Key>,
}

/// An idempotency key with the caller it belongs to.
pub type Key = (Caller, String);

impl StartOrder {
    /// A caller's order.
    pub fn new(caller: &Caller, spec: JobSpec, key: Option<String>) -> Self {
        Self {
            id: Job::new_id(&spec),
            caller: caller.clone(),
            spec,
            key: key.map(|key| (caller.clone(), key)),
        }
    }
}
