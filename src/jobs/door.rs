use std::fmt;
use std::sync::Arc;

use super::last_errors::LastErrors;
use super::{Config, Error, Rights, Role};
use crate::hosts::{HostBook, HostError, HostRef, Hosts};
use crate::job::{self, Caller, JobId, Scope};
use crate::nearest::nearest;
use crate::runner::{Lookup, Runner};

/// The one way to the runner and the hosts. Every verb of every caller goes through it: jobs of other callers, hosts that may not be
/// named and what the caller's role does not allow are refused here.
#[derive(Clone)]
pub(super) struct Door {
    caller: Caller,
    rights: Arc<Rights>,
    inside: Arc<Inside>,
}

/// What lies behind the door.
pub(super) struct Inside {
    pub(super) runner: Runner,
    pub(super) hosts: Arc<Hosts>,
    pub(super) config: Config,
    pub(super) last_errors: LastErrors,
}

/// What changes nothing: every role may do it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Look {
    Tail,
    Read,
    Search,
    Wait,
    Jobs,
    Hosts,
}

/// What changes something, here or on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Spawn,
    Write,
    Signal,
    Forget,
    Probe,
    Trust,
}

impl Act {
    /// The least role that may do it.
    fn needs(self) -> Role {
        match self {
            Self::Spawn | Self::Write | Self::Signal | Self::Forget | Self::Probe | Self::Trust => Role::Run,
        }
    }
}

impl Door {
    pub(super) fn new(caller: Caller, rights: Rights, inside: Inside) -> Self {
        Self { caller, rights: Arc::new(rights), inside: Arc::new(inside) }
    }

    /// The same for another caller.
    pub(super) fn of(&self, caller: Caller, rights: Rights) -> Self {
        Self { caller, rights: Arc::new(rights), inside: Arc::clone(&self.inside) }
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(super) fn rights(&self) -> &Rights {
        &self.rights
    }

    /// Whose jobs the caller sees.
    pub(super) fn scope(&self) -> Scope {
        if self.rights.role == Role::Admin { Scope::All } else { Scope::Of(self.caller.clone()) }
    }

    pub(super) fn config(&self) -> &Config {
        &self.inside.config
    }

    /// For the end of the process, which is nobody's verb.
    pub(super) fn runner(&self) -> &Runner {
        &self.inside.runner
    }

    /// Whether the caller may do something on a host.
    pub(super) fn has_host(&self, host: &str) -> bool {
        self.rights.hosts.contain(host, self.inside.hosts.book().tags(host))
    }

    /// For looking at something.
    pub(super) fn look(&self, verb: Look, subject: &dyn fmt::Display) -> &Inside {
        tracing::trace!(caller = %self.caller, ?verb, subject = ?subject.to_string(), "call");
        &self.inside
    }

    /// For doing something on a host.
    ///
    /// # Errors
    /// [`Error::Denied`].
    pub(super) fn act(&self, verb: Act, host: &str) -> Result<&Inside, Error> {
        self.check(verb, host)?;
        tracing::info!(caller = %self.caller, ?verb, host, "call");
        Ok(&self.inside)
    }

    fn check(&self, verb: Act, host: &str) -> Result<(), Error> {
        let needed = verb.needs();
        if self.rights.role < needed {
            return Err(Error::Denied { caller: self.caller.clone(), role: self.rights.role, needed });
        }
        if !self.has_host(host) {
            let (caller, host) = (self.caller.clone(), host.to_owned());
            return Err(Error::DeniedHost { caller, host, nearest: None });
        }
        Ok(())
    }

    /// For doing something to a fleet: on all of its hosts.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::DeniedHost`].
    pub(super) fn act_on_fleet(&self, verb: Act, id: &JobId, hosts: &[String]) -> Result<&Inside, Error> {
        for host in hosts {
            self.check(verb, host)?;
        }
        tracing::info!(caller = %self.caller, ?verb, fleet = %id, hosts = hosts.len(), "call");
        Ok(&self.inside)
    }

    /// For doing something on a host that the caller names.
    pub(super) async fn act_on_host(&self, verb: Act, host: &str) -> Result<(&Inside, HostRef), Error> {
        let inside = match self.act(verb, host) {
            Err(Error::DeniedHost { caller, host, .. }) => {
                let nearest = self.nearest(&host).await;
                return Err(Error::DeniedHost { caller, host, nearest });
            }
            allowed => allowed?,
        };
        let checked = inside.hosts.book().check(host).await;
        if let Err(HostError::Unknown { name, .. }) = checked {
            let nearest = self.nearest(&name).await;
            return Err(HostError::Unknown { name, nearest }.into());
        }
        checked?;
        Ok((inside, HostRef { caller: self.caller.clone(), name: host.to_owned() }))
    }

    /// For doing something on many hosts that the caller names.
    pub(super) async fn act_on_hosts(&self, verb: Act, hosts: &[String]) -> Result<&Inside, Error> {
        for host in hosts {
            if self.act(verb, host).is_err() {
                self.act_on_host(verb, host).await?;
            }
        }
        match self.inside.hosts.book().check_all(hosts).await {
            Err(HostError::Unknown { name, .. }) => {
                let nearest = self.nearest(&name).await;
                Err(HostError::Unknown { name, nearest }.into())
            }
            checked => checked.map(|()| &*self.inside).map_err(Error::from),
        }
    }

    /// The hosts by name.
    pub(super) fn book(&self) -> &HostBook {
        self.inside.hosts.book()
    }

    /// The host that was most likely meant, among those that the caller may use: of others it learns nothing.
    async fn nearest(&self, host: &str) -> Option<String> {
        let listed = self.inside.hosts.book().listed().await.ok()?;
        nearest(host, listed.keys().map(String::as_str).filter(|name| self.has_host(name))).map(str::to_owned)
    }

    /// A job that the caller names.
    pub(super) async fn find(&self, id: &JobId) -> Result<Arc<job::Job>, Error> {
        match self.look(Look::Jobs, id).runner.lookup(&self.scope(), id).await {
            Lookup::Found(job) => Ok(job),
            Lookup::Expired(tombstone) => Err(Error::Expired(tombstone)),
            Lookup::Unknown => Err(Error::UnknownJob(id.as_str().chars().take(64).collect())),
        }
    }
}
