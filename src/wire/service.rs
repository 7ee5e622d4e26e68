use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::Error;
use crate::jobs::{Access, Caller, Config, Defaults, Job, Jobs, Limits, Prompter, Prompters, Rights};

/// The contract over [`Jobs`]: one method a verb, with its request, its reply and one [`Error`] type.
///
/// All of them may be called at the same time, and dropping a call's future ends the call, never the job.
#[derive(Clone)]
pub struct Service {
    pub(super) jobs: Jobs,
    closing: CancellationToken,
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

    /// The same, with somebody to ask for each caller who has one.
    pub fn asking_callers(config: Config, access: Access, prompters: Prompters) -> Self {
        Self::over(Jobs::asking_callers(config, access, prompters))
    }

    /// A service over jobs that there are.
    pub fn over(jobs: Jobs) -> Self {
        Self { jobs, closing: CancellationToken::new() }
    }

    /// The same for another caller.
    #[must_use]
    pub fn of(&self, caller: Caller, rights: Rights) -> Self {
        Self { jobs: self.jobs.of(caller, rights), closing: self.closing.clone() }
    }

    /// From here on no call waits any longer, of whichever caller: it answers with what there is. For a server that is about to end.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Comes when the service is closed.
    pub async fn closed(&self) {
        self.closing.cancelled().await;
    }

    /// What comes of a wait; none when the service is closed meanwhile.
    pub(super) async fn unless_closed<T>(&self, waiting: impl Future<Output = T>) -> Option<T> {
        self.closing.run_until_cancelled(waiting).await
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
