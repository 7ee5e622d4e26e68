use std::sync::Arc;

use super::door::{Door, Inside, Look};
use super::last_errors::LastErrors;
use super::{Access, Command, Config, Error, Filter, FleetSpec, Job, Rights, Role, Summary};
use crate::hosts::{HostBook, Hosts, Prompters};
use crate::job::{Caller, JobId};
use crate::runner::{Runner, Stats};
use crate::ssh::{HostConfig, Prompter, Resolver};

/// Jobs on remote hosts, as one caller sees them: start them, find them again, end them.
///
/// A cheap handle: clones share jobs and connections. Dropping the last one, and the last [`Job`], stops following and leaves
/// remote processes alone; [`shutdown`](Self::shutdown) ends them.
#[derive(Clone)]
pub struct Jobs {
    pub(super) door: Door,
}

impl Jobs {
    /// Jobs of whoever started the process. Records and output lie in the state directory, with those of the user's other sshjobs
    /// processes; if that can't be used, jobs run nevertheless and say so ([`Status::unstored`](super::Status)). Must be called within a tokio runtime.
    pub fn new(config: Config, access: Access) -> Self {
        Self::asking_callers(config, access, nobody())
    }

    /// The same, with somebody to ask when a login of [`Caller::local`] needs a passphrase, a password or a code.
    pub fn asking(config: Config, access: Access, prompter: Arc<dyn Prompter>) -> Self {
        let of_local = move |caller: &Caller| (*caller == Caller::local()).then(|| Arc::clone(&prompter));
        Self::asking_callers(config, access, Box::new(of_local))
    }

    /// The same, with somebody to ask for each caller who has one.
    pub fn asking_callers(config: Config, access: Access, prompters: Prompters) -> Self {
        let book = book(&config, access);
        Self::with(config, book, prompters)
    }

    /// Jobs that know one more host than their configuration.
    pub(super) fn with_host(config: Config, host: HostConfig) -> Self {
        let book = book(&config, Access::Listed).with_given(host);
        Self::with(config, book, nobody())
    }

    fn with(config: Config, book: HostBook, prompters: Prompters) -> Self {
        let hosts = Arc::new(Hosts::new(book, config.limits.pool(), prompters));
        let runner = Runner::new(Arc::clone(&hosts), config.limits, config.open_store());
        let inside = Inside { runner, hosts, config, last_errors: LastErrors::default() };
        Self { door: Door::new(Caller::local(), Rights::everywhere(Role::Run), inside) }
    }

    /// The same hosts and bounds for another caller, who sees neither keys, cursors nor secrets of this one's, and its jobs only as
    /// [`Role::Admin`].
    #[must_use]
    pub fn of(&self, caller: Caller, rights: Rights) -> Self {
        Self { door: self.door.of(caller, rights) }
    }

    /// The caller whose jobs these are.
    pub fn caller(&self) -> &Caller {
        self.door.caller()
    }

    /// What the caller may do.
    pub fn rights(&self) -> &Rights {
        self.door.rights()
    }

    /// A command to be run on `host` by its login shell, as `ssh HOST COMMAND` would; nothing is started yet.
    pub fn command(&self, host: impl Into<String>, command: impl Into<String>) -> Command {
        Command::new(self.door.clone(), host.into(), command.into())
    }

    /// A command to be run on many hosts as one job; nothing is started yet. [`Job::fleet`] tells how its members stand.
    pub fn fleet(&self, fleet: FleetSpec, command: impl Into<String>) -> Command {
        Command::new(self.door.clone(), String::new(), command.into()).on(fleet)
    }

    /// A job by its id; a member of a fleet by the fleet's id, a slash and the member's host.
    ///
    /// # Errors
    /// [`Error::UnknownJob`] when the caller sees none, [`Error::Expired`] when it is over and no longer kept.
    pub async fn job(&self, id: &str) -> Result<Job, Error> {
        let (id, member) = id.split_once('/').map_or((id, None), |(id, member)| (id, Some(member)));
        let job = self.door.find(&JobId::from(id)).await?;
        let job = Job { door: self.door.clone(), job };
        match member {
            Some(name) => job.member(name).await,
            None => Ok(job),
        }
    }

    /// The jobs that the caller sees and that fit a filter, the newest first, and how many do: those of this process, and those that the state
    /// directory knows of other processes.
    ///
    /// # Errors
    /// [`Error::Store`] when the state directory can't be read.
    pub async fn list(&self, filter: Filter) -> Result<(Vec<Summary>, usize), Error> {
        let inside = self.door.look(Look::Jobs, &"all");
        Ok(inside.runner.list(&self.door.scope(), filter).await?)
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        self.door.config()
    }

    /// How often jobs of this process that the caller sees were taken in, ended or went. Waits until that is not `known`. Cancel safe.
    pub async fn changes(&self, known: Option<u64>) -> u64 {
        self.door.runner().changes(&self.door.scope(), known).await
    }

    /// What this process is doing, in numbers, for all callers.
    pub fn stats(&self) -> Stats {
        self.door.runner().stats()
    }

    /// Ends every caller's jobs that still run (TERM, a grace, KILL) and closes all connections; takes seconds at most.
    pub async fn shutdown(&self) {
        self.door.runner().shutdown().await;
    }
}

fn nobody() -> Prompters {
    Box::new(|_| None)
}

fn book(config: &Config, access: Access) -> HostBook {
    let access = if config.allow_any_host { Access::Any } else { access };
    let resolver = Resolver {
        ssh_config: config.ssh_config.clone(),
        settings: config.hosts.clone(),
        proxy_commands: config.allow_proxy_command,
        arguments: config.ssh_arguments.clone(),
    };
    HostBook::new(resolver, access)
}
