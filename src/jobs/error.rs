use std::sync::Arc;

use super::Role;
use crate::hosts::HostError;
use crate::job::{Caller, JobId, Phase, SpecError, TooManyCursors, TooSlow};
use crate::runner::{SignalError, SpawnError, Tombstone, WriteError};
use crate::ssh::{ConnectError, TrustError};
use crate::store::StoreError;

/// Why a call failed; [`source`](std::error::Error::source) tells the cause. A command that fails is not an error.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No job of the caller's has this id.
    #[error("there is no job {0:?}")]
    UnknownJob(String),
    /// The fleet has no such member.
    #[error("{fleet} has no member {name:?}")]
    NoMember {
        /// The fleet.
        fleet: JobId,
        /// Who was asked for.
        name: String,
        /// The member that was most likely meant.
        nearest: Option<String>,
    },
    /// The member of a fleet has no job.
    #[error("{name} has no job in {fleet}: {why}")]
    MemberNotStarted {
        /// The fleet.
        fleet: JobId,
        /// The member.
        name: String,
        /// Why not.
        why: String,
    },
    /// The job is over and no longer kept.
    #[error("job {} on {} {} after {} lines, and is no longer kept", .0.id, .0.host, ended(.0), .0.status.total_lines)]
    Expired(Box<Tombstone>),
    /// The caller's role does not allow it.
    #[error("{caller} may not do this: it has the role {role}, and this takes {needed}")]
    Denied {
        /// Who.
        caller: Caller,
        /// The caller's role.
        role: Role,
        /// The role that it takes.
        needed: Role,
    },
    /// The caller may do nothing on this host.
    #[error("{caller} may not use {host:?}")]
    DeniedHost {
        /// Who.
        caller: Caller,
        /// The host, as the caller named it.
        host: String,
        /// The host that it may use and most likely meant.
        nearest: Option<String>,
    },
    /// The job must be over for this, but still runs.
    #[error("job {0} still runs")]
    StillRunning(JobId),
    /// The host can't be named.
    #[error(transparent)]
    Host(#[from] HostError),
    /// The job can't be what was asked for.
    #[error(transparent)]
    Spec(#[from] SpecError),
    /// The job was not started.
    #[error("no job could be started on {host}")]
    Spawn {
        /// The host, as the caller named it.
        host: String,
        /// The listed host that was most likely meant, where this one can't be reached and is not listed.
        nearest: Option<String>,
        /// Why.
        source: SpawnError,
    },
    /// The host can't be reached to look at it.
    #[error("{host} can't be looked at")]
    Connect {
        /// The host, as the caller named it.
        host: String,
        /// Why.
        source: Arc<ConnectError>,
    },
    /// The host's key was not written into known_hosts.
    #[error(transparent)]
    Trust(Arc<TrustError>),
    /// The job was not signalled.
    #[error(transparent)]
    Signal(#[from] SignalError),
    /// Stdin was not written.
    #[error(transparent)]
    Write(#[from] WriteError),
    /// A pattern takes too long.
    #[error(transparent)]
    TooSlow(#[from] TooSlow),
    /// No more cursors are kept for this job.
    #[error(transparent)]
    TooManyCursors(#[from] TooManyCursors),
    /// The state directory can't be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The demo's SSH server can't start.
    #[error("the demo's SSH server can't start: {0}")]
    Demo(Arc<std::io::Error>),
}

/// How a job ended, in a few words.
fn ended(tombstone: &Tombstone) -> String {
    match &tombstone.status.phase {
        Phase::Starting => "was starting".to_owned(),
        Phase::Running => "was running".to_owned(),
        Phase::Ended(outcome) => outcome.to_string(),
    }
}
