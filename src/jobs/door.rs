use std::fmt;
use std::sync::Arc;

use super::last_errors::LastErrors;
use super::{Config, Error};
use crate::hosts::{HostRef, Hosts};
use crate::job::{self, Caller, JobId};
use crate::runner::{Lookup, Runner};

/// The one way to the runner and the hosts. Every verb of every caller goes through it; jobs of other callers and hosts
/// that may not be named are refused here.
#[derive(Clone)]
pub(super) struct Door {
    caller: Caller,
    inside: Arc<Inside>,
}

/// What lies behind the door.
pub(super) struct Inside {
    pub(super) runner: Runner,
    pub(super) hosts: Arc<Hosts>,
    pub(super) config: Config,
    pub(super) last_errors: LastErrors,
}

/// What a caller does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    Spawn,
    Tail,
    Read,
    Search,
    Wait,
    Write,
    Signal,
    Forget,
    Jobs,
    Hosts,
    Trust,
}

impl Door {
    pub(super) fn new(caller: Caller, inside: Inside) -> Self {
        Self { caller, inside: Arc::new(inside) }
    }

    /// The same for another caller.
    pub(super) fn of(&self, caller: Caller) -> Self {
        Self { caller, inside: Arc::clone(&self.inside) }
    }

    pub(super) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(super) fn config(&self) -> &Config {
        &self.inside.config
    }

    /// For a verb about no job or host in particular.
    pub(super) fn enter(&self, verb: Verb) -> &Inside {
        self.pass(verb, &"everything")
    }

    /// For a verb about a host that the caller names.
    pub(super) async fn enter_for_host(&self, verb: Verb, host: &str) -> Result<(&Inside, HostRef), Error> {
        let inside = self.pass(verb, &host);
        inside.hosts.book().check(host).await?;
        Ok((inside, HostRef { caller: self.caller.clone(), name: host.to_owned() }))
    }

    /// For a verb about a job that the caller names.
    pub(super) async fn enter_for_id(&self, verb: Verb, id: &JobId) -> Result<Arc<job::Job>, Error> {
        match self.pass(verb, id).runner.lookup(&self.caller, id).await {
            Lookup::Found(job) => Ok(job),
            Lookup::Expired(tombstone) => Err(Error::Expired(tombstone)),
            Lookup::Unknown => Err(Error::UnknownJob(id.as_str().chars().take(64).collect())),
        }
    }

    /// For a verb about a job that the caller holds.
    pub(super) fn enter_for_job(&self, verb: Verb, job: &job::Job) -> &Inside {
        self.pass(verb, &job.id)
    }

    fn pass(&self, verb: Verb, subject: &dyn fmt::Display) -> &Inside {
        tracing::trace!(caller = %self.caller, ?verb, %subject, "call");
        &self.inside
    }
}
