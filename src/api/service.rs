use std::sync::Arc;

use super::error::expired;
use super::host_book::HostBook;
use super::{Access, Code, Config, Error};
use crate::job::{Job, JobId};
use crate::runner::{Limits, Lookup, Runner};
use crate::ssh::{HostConfig, Prompter, Secrets};

/// Jobs on remote hosts: start them, follow them, end them.
///
/// One method a verb. All of them may be called at the same time, and dropping a call's future ends the call, never the
/// job. Call [`shutdown`](Self::shutdown) at the end: it ends the jobs that still run.
pub struct Service {
    pub(super) runner: Runner<Arc<HostBook>>,
    pub(super) hosts: Arc<HostBook>,
    pub(super) config: Config,
    pub(super) prompter: Option<Arc<dyn Prompter>>,
}

impl Service {
    /// A service without jobs. Must be called within a tokio runtime.
    pub fn new(config: Config, access: Access) -> Self {
        let hosts = HostBook::new(&config, access);
        Self::with_hosts(config, hosts, None)
    }

    /// The same, with somebody to ask when a login needs a passphrase, a password or a code.
    pub fn asking(config: Config, access: Access, prompter: Arc<dyn Prompter>) -> Self {
        let hosts = HostBook::new(&config, access);
        Self::with_hosts(config, hosts, Some(prompter))
    }

    /// A service that knows one more host than its configuration.
    pub(super) fn with_host(config: Config, host: HostConfig) -> Self {
        let hosts = HostBook::new(&config, Access::Listed).with_given(host);
        Self::with_hosts(config, hosts, None)
    }

    fn with_hosts(config: Config, hosts: HostBook, prompter: Option<Arc<dyn Prompter>>) -> Self {
        let hosts = Arc::new(hosts);
        let secrets = Secrets::asking(prompter.clone());
        Self { runner: Runner::new(Arc::clone(&hosts), config.limits, secrets), hosts, config, prompter }
    }

    /// Ends every job that still runs (TERM, a grace, KILL) and closes all connections; takes seconds at most.
    pub async fn shutdown(&self) {
        self.runner.shutdown().await;
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.config.limits
    }

    pub(super) fn job(&self, id: &str) -> Result<Arc<Job>, Error> {
        match self.runner.lookup(&JobId::from(id)) {
            Lookup::Found(job) => Ok(job),
            Lookup::Expired(tombstone) => Err(expired(&tombstone, "run the command again to see its output")),
            Lookup::Unknown => Err(Error::new(
                Code::UnknownJob,
                format!("there is no job {:?}", id.chars().take(64).collect::<String>()),
                "ssh_jobs lists the jobs there are",
            )),
        }
    }
}
