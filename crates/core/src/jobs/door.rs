//! State shared by a caller's handles: the admission of its calls, and the runner, hosts and files behind it.

use std::sync::Arc;

use super::attention::Attention;
use super::config::Config;
use super::error::Error;
#[cfg(feature = "files")]
use super::jobs_to_fetch::JobsToFetch;
use super::last_errors::LastErrors;
use super::notify::Notifier;
use super::secrets::ConfiguredSecrets;
use crate::admission::{Admission, CallContext, JudgedJob};
use crate::forward::Forwards;
use crate::hosts::{HostBook, HostRef, Hosts};
use crate::runner::{Lookup, Runner, SeenJob};
use sshjobs_job::{Caller, JobId};
use sshjobs_store::{Store, StoreError};

/// The door of one caller. The runner and its neighbours [inside](Inside) act only for a permit, which the
/// [`Admission`] makes. A cheap handle.
#[derive(Clone)]
pub(super) struct Door {
    pub(super) admission: Admission,
    pub(super) inside: Arc<Inside>,
}

/// State shared by all callers.
pub(super) struct Inside {
    pub(super) runner: Runner,
    pub(super) hosts: Arc<Hosts>,
    pub(super) config: Config,
    pub(super) last_errors: LastErrors,
    pub(super) forwards: Forwards,
    pub(super) secrets: Arc<ConfiguredSecrets>,
    pub(super) notifier: Notifier,
    /// Jobs whose files are to be copied back.
    #[cfg(feature = "files")]
    pub(super) to_fetch: Arc<JobsToFetch>,
    /// Notes for which durable jobs callers ask.
    pub(super) attention: Arc<Attention>,
    /// The store of a face's own state.
    pub(super) store: Option<Result<Arc<dyn Store>, StoreError>>,
}

impl Door {
    /// The same door for another call.
    pub(super) fn in_context(&self, context: CallContext) -> Self {
        Self {
            admission: self.admission.in_context(context),
            inside: Arc::clone(&self.inside),
        }
    }

    /// The caller and the circumstances of the call.
    pub(super) fn context(&self) -> &CallContext {
        self.admission.context()
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.context().caller
    }

    pub(super) fn runner(&self) -> &Runner {
        &self.inside.runner
    }

    /// The known hosts.
    pub(super) fn book(&self) -> &HostBook {
        self.inside.hosts.book()
    }

    /// Notes why the last connection to a host failed, for the list of hosts. `None` if it did not.
    pub(super) fn note_connection(&self, host: &HostRef, error: Option<&Error>) {
        let is_about_host = error.is_none_or(Error::is_about_host);
        if is_about_host {
            self.inside.last_errors.note(host, error);
        }
    }

    /// Finds a job by its id.
    pub(super) async fn find(&self, id: &JobId) -> Result<SeenJob, Error> {
        // Cut, because the caller chose the id and may have sent any text.
        let unknown = Error::UnknownJob(id.as_str().chars().take(64).collect());
        match self.runner().lookup(&self.context().scope(), id).await {
            Lookup::Found(job) if self.admission.may_see(JudgedJob::of(&job)).await => {
                Ok(SeenJob::new(job))
            }
            // The same error as for an unknown id, so that ids of hidden jobs can't be found out.
            Lookup::Found(_) => Err(unknown),
            Lookup::Expired(tombstone) => {
                let is_visible = tombstone.caller == *self.caller()
                    || self.admission.may_reach_all(&tombstone.host).await;
                Err(if is_visible {
                    Error::Expired(tombstone)
                } else {
                    unknown
                })
            }
            Lookup::Unknown => Err(unknown),
            Lookup::Unreadable(error) => Err(Error::Store(error)),
        }
    }
}
