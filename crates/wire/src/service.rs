//! [`Service`]: the verbs as one caller uses them, whatever the face.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::pass_on::PassOn;
use crate::error::Error;
use sshjobs_core::jobs::{
    Access, CallContext, Caller, Config, Defaults, Job, Jobs, Limits, Prompter, Prompters,
    ReadableJob, Rights, Verb,
};

/// The contract over [`Jobs`]: one method per verb, with its request, its reply and one [`Error`] type.
///
/// Methods may run concurrently. Dropping a call's future ends the call, never the job.
#[derive(Clone)]
pub struct Service {
    pub(super) jobs: Jobs,
    closing: CancellationToken,
    /// Whether callers may copy files of this machine, below the configured roots.
    pub(super) offers_local_files: bool,
    /// Performs calls at other replicas. `None` without a cluster, and for calls that another
    /// replica has passed on.
    pub(super) pass_on: Option<Arc<dyn PassOn>>,
}

impl Service {
    /// A service without jobs. Must be called within a tokio runtime.
    pub fn new(config: Config, access: Access) -> Self {
        Self::over(Jobs::new(config, access))
    }

    /// A service with a prompter for passphrases, passwords and codes during logins.
    pub fn asking(config: Config, access: Access, prompter: Arc<dyn Prompter>) -> Self {
        Self::over(Jobs::asking(config, access, prompter))
    }

    /// A service with a prompter for each caller that has one.
    pub fn asking_callers(config: Config, access: Access, prompters: Prompters) -> Self {
        Self::over(Jobs::asking_callers(config, access, prompters))
    }

    /// A service over existing jobs.
    pub fn over(jobs: Jobs) -> Self {
        Self {
            jobs,
            closing: CancellationToken::new(),
            offers_local_files: false,
            pass_on: None,
        }
    }

    /// The same service for another caller.
    #[must_use]
    pub fn of(&self, caller: Caller, rights: Rights) -> Self {
        Self {
            jobs: self.jobs.of(caller, rights),
            // Clones share the token, so that `close` ends the waits of every caller.
            closing: self.closing.clone(),
            offers_local_files: self.offers_local_files,
            pass_on: self.pass_on.clone(),
        }
    }

    /// The same service for another call: `change` says what differs.
    #[must_use]
    pub fn with_context(&self, change: impl FnOnce(&mut CallContext)) -> Self {
        Self {
            jobs: self.jobs.with_context(change),
            ..self.clone()
        }
    }

    /// The same service for a client on this machine, which may copy files below the configured
    /// `transfer_roots`.
    #[must_use]
    pub fn offering_local_files(self) -> Self {
        Self {
            offers_local_files: true,
            ..self
        }
    }

    /// The same service, as one replica of a cluster: it passes calls on to the replica that has the
    /// host or the job.
    #[must_use]
    pub fn passing_on(self, pass_on: Arc<dyn PassOn>) -> Self {
        Self {
            pass_on: Some(pass_on),
            ..self
        }
    }

    /// The same service, for a call that edits a file and does not replace it.
    pub(crate) fn editing(&self) -> Self {
        Self {
            jobs: self.jobs.editing(),
            ..self.clone()
        }
    }

    /// Whether callers may copy files of this machine.
    pub fn offers_local_files(&self) -> bool {
        self.offers_local_files && !self.jobs.config().transfer_roots.is_empty()
    }

    /// Whether its client is on this machine, and not somewhere behind HTTP.
    pub(super) fn is_for_this_machine(&self) -> bool {
        self.offers_local_files
    }

    /// Ends the waits of all callers early, now and later: they return what is available. For a
    /// server that is shutting down.
    pub fn close(&self) {
        self.closing.cancel();
    }

    /// Resolves when the service is closed.
    pub async fn closed(&self) {
        self.closing.cancelled().await;
    }

    /// Awaits a future. `None` if the service is closed first.
    pub(super) async fn unless_closed<T>(&self, waiting: impl Future<Output = T>) -> Option<T> {
        self.closing.run_until_cancelled(waiting).await
    }

    /// The jobs below the contract.
    pub fn library(&self) -> &Jobs {
        &self.jobs
    }

    /// In a cluster, hands all hosts over to other replicas. Then waits for attached jobs to end, at
    /// most for `drain`.
    pub async fn hand_over(&self, drain: Duration) {
        self.jobs.hand_over(drain).await;
    }

    /// Ends every job that still runs (TERM, a grace, KILL) and closes all connections. Takes some
    /// seconds at most.
    pub async fn shutdown(&self) {
        self.jobs.shutdown().await;
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.jobs.config().limits
    }

    /// Longest wait of one call, in milliseconds.
    pub(super) fn longest_wait_ms(&self) -> u64 {
        u64::try_from(self.limits().max_wait.as_millis()).unwrap_or(u64::MAX)
    }

    pub(super) fn defaults(&self) -> &Defaults {
        &self.jobs.config().defaults
    }

    /// A job, for a verb that shows none of its output.
    pub(super) async fn job(&self, verb: Verb, id: &str) -> Result<Job, Error> {
        Ok(self.jobs.job_for(verb, id).await?)
    }

    /// A job, for a verb that shows its output.
    pub(super) async fn readable(&self, verb: Verb, id: &str) -> Result<ReadableJob, Error> {
        Ok(self.jobs.readable(verb, id).await?)
    }
}
