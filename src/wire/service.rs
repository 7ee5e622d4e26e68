use std::sync::Arc;

use super::Error;
use crate::jobs::{Access, Config, Defaults, Job, Jobs, Limits, Prompter};

/// The contract over [`Jobs`]: one method a verb, with its request, its reply and one [`Error`] type.
///
/// All of them may be called at the same time, and dropping a call's future ends the call, never the job.
#[derive(Clone)]
pub struct Service {
    pub(super) jobs: Jobs,
}

impl Service {
    /// A service without jobs. Must be called within a tokio runtime.
    pub fn new(config: Config, access: Access) -> Self {
        Self::over(Jobs::new(config, access))
    }

    /// The same, with somebody to ask when a login needs a passphrase, a password or a code.
    pub fn asking(config: Config, access: Access, prompter: Arc<dyn Prompter>) -> Self {
        Self::over(Jobs::asking(config, access, prompter))
    }

    /// A service over jobs that there are.
    pub fn over(jobs: Jobs) -> Self {
        Self { jobs }
    }

    /// The jobs that it is over.
    pub fn library(&self) -> &Jobs {
        &self.jobs
    }

    /// Ends every job that still runs (TERM, a grace, KILL) and closes all connections; takes seconds at most.
    pub async fn shutdown(&self) {
        self.jobs.shutdown().await;
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.jobs.config().limits
    }

    pub(super) fn defaults(&self) -> &Defaults {
        &self.jobs.config().defaults
    }

    pub(super) async fn job(&self, id: &str) -> Result<Job, Error> {
        Ok(self.jobs.job(id).await?)
    }
}
