//! Options for [`Jobs`], and the steps of their start that may fail.

use std::path::PathBuf;
use std::sync::Arc;

#[cfg(feature = "cluster")]
use super::cluster::Cluster;
use super::config::Config;
use super::error::Error;
use super::jobs::{Jobs, for_the_local_caller};
use crate::hosts::{Access, Prompters};
use sshjobs_ssh::Prompter;
use sshjobs_store::{Store, StoreError};

/// Opens the store that a process shares with others, for a process of this name. Blocking.
type OpenStore = Box<dyn FnOnce(&str) -> Result<Arc<dyn Store>, StoreError> + Send>;

/// Options for [`Jobs`]; see [`Jobs::builder`].
#[derive(Default)]
#[must_use = "nothing happens before `start`"]
pub struct JobsBuilder {
    config: Config,
    access: Option<Access>,
    prompters: Option<Prompters>,
    shared_store: Option<OpenStore>,
    state_dir: Option<PathBuf>,
}

impl Jobs {
    /// Options for jobs: configuration, hosts, state directory and prompter.
    pub fn builder() -> JobsBuilder {
        JobsBuilder::default()
    }
}

impl JobsBuilder {
    /// Sets limits, hosts and defaults, as a configuration file has them.
    ///
    /// The state directory of the configuration is not used: see [`state_dir`](Self::state_dir).
    pub fn config(mut self, config: Config) -> Self {
        self.config = config;
        self
    }

    /// Sets which hosts may be named. By default any host: it is resolved as ssh does it.
    pub fn access(mut self, access: Access) -> Self {
        self.access = Some(access);
        self
    }

    /// Asks for passphrases, passwords and codes during logins. By default a login that needs one
    /// fails.
    pub fn prompter(mut self, prompter: Arc<dyn Prompter>) -> Self {
        self.prompters = Some(for_the_local_caller(prompter));
        self
    }

    /// Like [`prompter`](Self::prompter), for each caller that has one.
    pub fn prompters(mut self, prompters: Prompters) -> Self {
        self.prompters = Some(prompters);
        self
    }

    /// Makes this process a replica of a cluster, which stores records and output.
    #[cfg(feature = "cluster")]
    pub fn cluster(mut self, cluster: Cluster) -> Self {
        self.shared_store = Some(Box::new(move |process| cluster.open_store(process)));
        self
    }

    /// Stores records and output of jobs in this directory, shared with other sshjobs processes of
    /// the user. It is created if it is missing.
    ///
    /// Without a state directory jobs are in memory only: no other process finds them, not even
    /// durable ones.
    pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(directory.into());
        self
    }

    /// Opens the cluster or the state directory, if there is one, and returns a [`Jobs`] that has no
    /// connections yet.
    ///
    /// # Errors
    /// [`Error::Settings`]; [`Error::Store`] if the cluster or the state directory can't be used.
    pub async fn start(self) -> Result<Jobs, Error> {
        let Self {
            mut config,
            access,
            prompters,
            shared_store,
            state_dir,
        } = self;
        if let Some(mistake) = config.validate() {
            return Err(Error::Settings(mistake));
        }
        // With `store` set and no directory, `open_store` would use the user's own state directory.
        config.store = state_dir.is_some();
        // A replica's audit log is in the configured state directory.
        if shared_store.is_none() || state_dir.is_some() {
            config.state_dir = state_dir;
        }
        let opening = config.clone();
        let opened = tokio::task::spawn_blocking(move || match shared_store {
            Some(open) => Some(open(&opening.process)),
            None => opening.open_store(),
        });
        let store = opened.await.expect("opening a store does not panic").transpose()?;
        Ok(Jobs::with_store(
            config,
            access.unwrap_or(Access::Any),
            prompters.unwrap_or_else(|| Box::new(|_| None)),
            store,
        ))
    }
}
