//! The door that every verb passes: it knows the caller's rights, and hands out the runner and
//! the hosts only after a check.

use std::fmt;
use std::sync::Arc;

use futures_util::{FutureExt, StreamExt, TryStreamExt, stream};

use super::config::Config;
use super::error::Error;
use super::excluded::is_excluded_by_address;
use super::last_errors::LastErrors;
use super::rights::{Rights, Role};
use crate::forward::Forwards;
use crate::hosts::{HostBook, HostError, HostRef, Hosts};
use crate::job::{self, Become, Caller, JobId, Scope};
use crate::nearest::nearest;
use crate::runner::{Lookup, Runner};

/// The only way to the runner and the hosts. Every verb of every caller passes it. It refuses jobs
/// of other callers, hosts that may not be used, and verbs that the caller's role does not allow.
#[derive(Clone)]
pub(super) struct Door {
    caller: Caller,
    rights: Arc<Rights>,
    inside: Arc<Inside>,
}

/// Maximum names resolved concurrently.
const AT_A_TIME: usize = 16;

/// State shared by all callers.
pub(super) struct Inside {
    pub(super) runner: Runner,
    pub(super) hosts: Arc<Hosts>,
    pub(super) config: Config,
    pub(super) last_errors: LastErrors,
    pub(super) forwards: Forwards,
}

/// Read-only verbs, allowed for every role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadVerb {
    Tail,
    Read,
    Search,
    Wait,
    Jobs,
    Hosts,
    Forwards,
}

/// Verbs that change something, here or on a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Act {
    Spawn,
    Write,
    Signal,
    Forget,
    Probe,
    Trust,
    /// Reads files of a host.
    Get,
    /// Writes files of a host.
    Put,
    /// Forwards a port through a host.
    Forward,
}

impl Act {
    /// Minimum role for the verb.
    fn needs(self) -> Role {
        match self {
            // Files are read with the rights of the account on the host, as by a command.
            Self::Spawn
            | Self::Write
            | Self::Signal
            | Self::Forget
            | Self::Probe
            | Self::Trust
            | Self::Get
            | Self::Put
            | Self::Forward => Role::Run,
        }
    }
}

impl Door {
    pub(super) fn new(caller: Caller, rights: Rights, inside: Inside) -> Self {
        Self {
            caller,
            rights: Arc::new(rights),
            inside: Arc::new(inside),
        }
    }

    /// The same door for another caller.
    pub(super) fn of(&self, caller: Caller, rights: Rights) -> Self {
        Self {
            caller,
            rights: Arc::new(rights),
            inside: Arc::clone(&self.inside),
        }
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(super) fn rights(&self) -> &Rights {
        &self.rights
    }

    /// The callers whose jobs this caller sees.
    pub(super) fn scope(&self) -> Scope {
        if self.rights.role == Role::Admin {
            Scope::All
        } else {
            Scope::Of(self.caller.clone())
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.inside.config
    }

    /// Access for the shutdown of the process, which is not a caller's verb.
    pub(super) fn runner(&self) -> &Runner {
        &self.inside.runner
    }

    /// All forwards, for the shutdown of the process.
    pub(super) fn forwards(&self) -> &Forwards {
        &self.inside.forwards
    }

    /// Whether the caller has rights on a host.
    pub(super) fn has_host(&self, host: &str) -> bool {
        self.rights.hosts.contain(host, self.inside.hosts.book().tags(host))
    }

    /// Access for read-only verbs.
    pub(super) fn look(&self, verb: ReadVerb, subject: &dyn fmt::Display) -> &Inside {
        tracing::trace!(caller = %self.caller, ?verb, subject = ?subject.to_string(), "call");
        &self.inside
    }

    /// Access for a verb on a host.
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
            return Err(Error::Denied {
                caller: self.caller.clone(),
                role: self.rights.role,
                needed,
            });
        }
        if !self.has_host(host) {
            let caller = self.caller.clone();
            let host = host.to_owned();
            return Err(Error::DeniedHost {
                caller,
                host,
                nearest: None,
            });
        }
        Ok(())
    }

    /// Refuses another user of a host unless the caller might also log in as that user.
    ///
    /// # Errors
    /// [`Error::DeniedHost`].
    pub(super) fn check_user(&self, host: &str, becomes: Option<&Become>) -> Result<(), Error> {
        let Some(becomes) = becomes else { return Ok(()) };
        let place = host.rsplit_once('@').map_or(host, |(_, place)| place);
        let login = format!("{}@{place}", becomes.user());
        if self.has_host(&login) {
            tracing::info!(caller = %self.caller, host, becomes = %becomes, "as another user");
            return Ok(());
        }
        Err(Error::DeniedHost {
            caller: self.caller.clone(),
            host: login,
            nearest: None,
        })
    }

    /// Access for a verb on a fleet: needs rights on all of its hosts.
    ///
    /// # Errors
    /// [`Error::Denied`], [`Error::DeniedHost`].
    pub(super) fn act_on_fleet(
        &self,
        verb: Act,
        id: &JobId,
        hosts: &[String],
    ) -> Result<&Inside, Error> {
        for host in hosts {
            self.check(verb, host)?;
        }
        tracing::info!(caller = %self.caller, ?verb, fleet = %id, hosts = hosts.len(), "call");
        Ok(&self.inside)
    }

    /// Access for a verb on a host that the caller names.
    pub(super) async fn act_on_host(
        &self,
        verb: Act,
        host: &str,
    ) -> Result<(&Inside, HostRef), Error> {
        let inside = match self.act(verb, host) {
            Err(Error::DeniedHost { host, .. }) => return Err(self.denied_host(&host).await),
            allowed => allowed?,
        };
        self.checked_address(host).await?;
        let checked = inside.hosts.book().check(host).await;
        // The book suggests any listed host. This replaces it by one that the caller may use.
        if let Err(HostError::Unknown { name, .. }) = checked {
            let nearest = self.nearest(&name).await;
            return Err(HostError::Unknown { name, nearest }.into());
        }
        checked?;
        Ok((
            inside,
            HostRef {
                caller: self.caller.clone(),
                name: host.to_owned(),
            },
        ))
    }

    /// Access for a verb on many hosts that the caller names.
    pub(super) async fn act_on_hosts(&self, verb: Act, hosts: &[String]) -> Result<&Inside, Error> {
        for host in hosts {
            // Repeated on failure: `act_on_host` adds the most similar host to the error.
            if self.act(verb, host).is_err() {
                self.act_on_host(verb, host).await?;
            }
        }
        if self.rights.hosts.has_exclusions() {
            let checks: Vec<_> =
                hosts.iter().map(|host| self.checked_address(host).boxed()).collect();
            stream::iter(checks).buffered(AT_A_TIME).try_collect::<()>().await?;
        }
        match self.inside.hosts.book().check_all(hosts).await {
            Err(HostError::Unknown { name, .. }) => {
                let nearest = self.nearest(&name).await;
                Err(HostError::Unknown { name, nearest }.into())
            }
            checked => checked.map(|()| &*self.inside).map_err(Error::from),
        }
    }

    /// Refuses a host that is another name of an excluded one.
    async fn checked_address(&self, host: &str) -> Result<(), Error> {
        if is_excluded_by_address(&self.rights.hosts, self.inside.hosts.book(), host).await {
            return Err(self.denied_host(host).await);
        }
        Ok(())
    }

    async fn denied_host(&self, host: &str) -> Error {
        let nearest = self.nearest(host).await;
        Error::DeniedHost {
            caller: self.caller.clone(),
            host: host.to_owned(),
            nearest,
        }
    }

    /// The names that the caller may use, also by their addresses, in the same order.
    pub(super) async fn usable(&self, names: Vec<String>) -> Vec<String> {
        let checks: Vec<_> = names
            .into_iter()
            .map(|name| async { self.may_reach(&name).await.then_some(name) }.boxed())
            .collect();
        stream::iter(checks)
            .buffered(AT_A_TIME)
            .filter_map(async |name| name)
            .collect()
            .await
    }

    /// Notes why the last connection to a host failed, for the list of hosts. `None` if it did not.
    pub(super) fn note_connection(&self, host: &HostRef, error: Option<&Error>) {
        self.inside.last_errors.note(host, error);
    }

    /// The known hosts.
    pub(super) fn book(&self) -> &HostBook {
        self.inside.hosts.book()
    }

    /// The most similar name among the hosts that the caller may use. Others are not revealed.
    pub(super) async fn nearest(&self, host: &str) -> Option<String> {
        let listed = self.inside.hosts.book().listed().await.ok()?;
        nearest(
            host,
            listed
                .keys()
                .map(String::as_str)
                .filter(|name| *name != host && self.has_host(name)),
        )
        .map(str::to_owned)
    }

    /// Whether the caller may see a job in its scope. A caller always sees its own jobs. An admin
    /// with limited hosts sees jobs of others only on these.
    async fn may_see(&self, job: &job::Job) -> bool {
        if job.caller == self.caller {
            return true;
        }
        let hosts = match &job.spec.fleet {
            Some(plan) => plan.members.as_slice(),
            None => std::slice::from_ref(&job.spec.host),
        };
        for host in hosts {
            if !self.may_reach(host).await {
                return false;
            }
        }
        true
    }

    /// Whether the caller has rights on a host, or on each host of a fleet by its folded name.
    async fn may_reach_all(&self, folded: &str) -> bool {
        for word in job::words(folded) {
            let hosts = job::unfold(word).unwrap_or_else(|_| vec![word.to_owned()]);
            for host in hosts {
                if !self.may_reach(&host).await {
                    return false;
                }
            }
        }
        true
    }

    /// Whether the caller has rights on a host, also by its address.
    pub(super) async fn may_reach(&self, host: &str) -> bool {
        self.has_host(host)
            && !is_excluded_by_address(&self.rights.hosts, self.inside.hosts.book(), host).await
    }

    /// The most similar name that the caller may use. `None` if `host` itself is listed.
    pub(super) async fn nearest_unlisted(&self, host: &str) -> Option<String> {
        let listed = self.inside.hosts.book().listed().await.ok()?;
        if listed.contains_key(host) {
            None
        } else {
            self.nearest(host).await
        }
    }

    /// Finds a job by its id.
    pub(super) async fn find(&self, id: &JobId) -> Result<Arc<job::Job>, Error> {
        // Cut, because the caller chose the id and may have sent any text.
        let unknown = || Error::UnknownJob(id.as_str().chars().take(64).collect());
        match self.look(ReadVerb::Jobs, id).runner.lookup(&self.scope(), id).await {
            Lookup::Found(job) if self.may_see(&job).await => Ok(job),
            // The same error as for an unknown id, so that ids of hidden jobs can't be found out.
            Lookup::Found(_) => Err(unknown()),
            Lookup::Expired(tombstone) => {
                let is_visible =
                    tombstone.caller == self.caller || self.may_reach_all(&tombstone.host).await;
                Err(if is_visible {
                    Error::Expired(tombstone)
                } else {
                    unknown()
                })
            }
            Lookup::Unknown => Err(unknown()),
            Lookup::Unreadable(error) => Err(Error::Store(error)),
        }
    }
}
