use std::sync::Arc;

use super::error::SpawnError;
use super::order::StartOrder;
use super::registry::{RegisteredJob, Registry};
use sshjobs_job::Job;

impl Registry {
    /// The job with the order's key, if its specification is the same. An error if that job is no
    /// longer kept.
    pub(crate) fn by_key(&self, order: &StartOrder) -> Result<Option<Arc<Job>>, SpawnError> {
        let Some(id) = order.key.as_ref().and_then(|key| self.by_key.get(key)) else {
            return Ok(None);
        };
        match (self.jobs.get(id), self.graves.get(id)) {
            (Some(RegisteredJob { job, .. }), _) if job.spec.is_same(&order.spec) => {
                Ok(Some(Arc::clone(job)))
            }
            (None, Some(grave)) if grave.spec == order.spec.fingerprint(&self.secret) => {
                Err(SpawnError::Expired(Box::new(grave.tombstone.clone())))
            }
            (None, None) => Ok(None),
            _ => Err(SpawnError::KeyReused),
        }
    }
}
