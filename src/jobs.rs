//! The entry of the library: jobs on the hosts of ssh_config.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use sshjobs_core::jobs as core_jobs;
use sshjobs_core::jobs::{
    Access, Command, Config, Filter, FleetSpec, Freshness, HostSettings, Limits, Prompter,
};

use crate::error::Error;
use crate::fleet::Fleet;
use crate::host::Host;
use crate::job::{Job, ListedJob};

/// Jobs on remote hosts: start, find and end them.
///
/// A cheap handle: clones share jobs and connections. Dropping the last handle that was made from it
/// closes the connections and leaves remote processes running; [`shutdown`](Self::shutdown) ends
/// them first.
#[derive(Clone)]
pub struct Jobs {
    pub(crate) core: core_jobs::Jobs,
}

/// Options for [`Jobs`]; see [`Jobs::builder`].
#[must_use = "nothing happens before `start`"]
pub struct JobsBuilder {
    config: Config,
    access: Access,
    prompter: Option<Arc<dyn Prompter>>,
    #[cfg(feature = "sqlite")]
    state_dir: Option<PathBuf>,
}

/// Selects jobs for [`Jobs::list`]. The default selects the newest hundred.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFilter {
    /// Only jobs on this host.
    pub host: Option<String>,
    /// Only jobs with this label.
    pub label: Option<String>,
    /// Maximum number of jobs.
    pub limit: usize,
}

impl Jobs {
    /// Jobs on any host, which is resolved as ssh does it: by `~/.ssh/config` and known_hosts. Nothing
    /// is stored, and a login that needs a person fails.
    ///
    /// # Errors
    /// As [`JobsBuilder::start`].
    pub async fn start() -> Result<Self, Error> {
        Self::builder().start().await
    }

    /// Options for jobs: hosts, limits, state directory and prompter.
    pub fn builder() -> JobsBuilder {
        JobsBuilder {
            config: Config::default(),
            access: Access::Any,
            prompter: None,
            #[cfg(feature = "sqlite")]
            state_dir: None,
        }
    }

    /// A host by its name, as ssh takes it. Nothing is resolved or checked before it is used.
    pub fn host(&self, name: impl Into<String>) -> Host {
        Host::new(self.core.clone(), name.into())
    }

    /// The listed hosts: those of ssh_config and of [`JobsBuilder::host`], by name. Connects to none.
    ///
    /// # Errors
    /// If ssh_config can't be read.
    pub async fn hosts(&self) -> Result<Vec<Host>, Error> {
        let names = self.core.host_names().await?;
        Ok(names.into_iter().map(|(name, _tags)| self.host(name)).collect())
    }

    /// Starts a command on many hosts, as one job. Its members start as the [`FleetSpec`] says.
    ///
    /// If cancelled before the fleet is registered, nothing is started; later, the fleet continues
    /// and [`list`](Self::list) has it.
    ///
    /// # Errors
    /// If the command is invalid for any host, a host can't be used, or a pattern matches none.
    pub async fn spawn_on(&self, hosts: FleetSpec, command: &Command) -> Result<Fleet, Error> {
        let fleet = self.core.spawn(hosts, command.clone()).await?;
        Ok(Fleet::new(fleet))
    }

    /// A job by its id: one of this process, or of another one with the same state directory.
    ///
    /// # Errors
    /// [`UnknownJob`](crate::ErrorKind::UnknownJob), [`Expired`](crate::ErrorKind::Expired) if it is no longer
    /// kept, and [`Refused`](crate::ErrorKind::Refused) by the policy.
    pub async fn job(&self, id: &str) -> Result<Job, Error> {
        Ok(Job::new(self.core.job(id).await?))
    }

    /// Lists jobs, the newest first: those of this process, and of others with the same state
    /// directory.
    ///
    /// # Errors
    /// If the state directory can't be read.
    pub async fn list(&self, filter: JobFilter) -> Result<Vec<ListedJob>, Error> {
        let filter = Filter {
            host: filter.host,
            label: filter.label,
            limit: filter.limit,
            ..Filter::default()
        };
        let (listed, _total) = self.core.list(filter, Freshness::AskHosts).await?;
        Ok(listed.into_iter().map(ListedJob::of).collect())
    }

    /// Ends all jobs that still run (TERM, a grace, KILL) and closes all forwards and connections.
    /// Takes some seconds at most.
    pub async fn shutdown(&self) {
        self.core.shutdown().await;
    }
}

impl JobsBuilder {
    /// Reads this ssh_config in place of the user's and the system's.
    pub fn ssh_config(mut self, file: impl Into<PathBuf>) -> Self {
        self.config.ssh_config = Some(file.into());
        self
    }

    /// Sets which hosts may be named. By default any.
    pub fn access(mut self, access: Access) -> Self {
        self.access = access;
        self
    }

    /// Adds a host, or sets for one of ssh_config what its lines don't.
    pub fn host(mut self, name: impl Into<String>, settings: HostSettings) -> Self {
        self.config.hosts.insert(name.into(), settings);
        self
    }

    /// Sets limits on jobs, output and connections.
    pub fn limits(mut self, limits: Limits) -> Self {
        self.config.limits = limits;
        self
    }

    /// Asks for passphrases, passwords and codes during logins. By default a login that needs one
    /// fails.
    pub fn prompter(mut self, prompter: Arc<dyn Prompter>) -> Self {
        self.prompter = Some(prompter);
        self
    }

    /// Stores records and output of jobs in this directory, shared with other processes that use it. It
    /// is created if it is missing.
    ///
    /// Without a state directory jobs are in memory only: no other process finds them, not even
    /// [durable](Command::durable) ones.
    #[cfg(feature = "sqlite")]
    pub fn state_dir(mut self, directory: impl Into<PathBuf>) -> Self {
        self.state_dir = Some(directory.into());
        self
    }

    /// Asks this policy file about each call. A call that it does not allow fails with
    /// [`Refused`](crate::ErrorKind::Refused).
    #[cfg(feature = "policy")]
    pub fn policy(mut self, file: impl Into<PathBuf>) -> Self {
        self.config.policy.file = Some(file.into());
        self
    }

    /// Opens the state directory, if there is one, and returns a [`Jobs`] that has no connections yet.
    ///
    /// # Errors
    /// [`Settings`](crate::ErrorKind::Settings) if a limit is out of range, and
    /// [`Storage`](crate::ErrorKind::Storage) if the state directory can't be used.
    pub async fn start(self) -> Result<Jobs, Error> {
        let mut builder = core_jobs::Jobs::builder().config(self.config).access(self.access);
        if let Some(prompter) = self.prompter {
            builder = builder.prompter(prompter);
        }
        #[cfg(feature = "sqlite")]
        if let Some(directory) = self.state_dir {
            builder = builder.state_dir(directory);
        }
        let core = builder.start().await?;
        Ok(Jobs { core })
    }
}

impl fmt::Debug for Jobs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Jobs").finish_non_exhaustive()
    }
}

impl fmt::Debug for JobsBuilder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JobsBuilder")
            .field("access", &self.access)
            .finish_non_exhaustive()
    }
}

impl Default for JobFilter {
    fn default() -> Self {
        Self {
            host: None,
            label: None,
            limit: 100,
        }
    }
}
