use std::sync::Arc;
use std::time::Duration;

use super::Tombstone;
use crate::hosts::PoolError;
use crate::job::{FarEndError, Job, PlanError};
use crate::spool::StartError;
use crate::ssh::{ChannelError, ConnectError};

/// An error and its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let shown = error.to_string();
        if !text.ends_with(&shown) {
            text = format!("{text}: {shown}");
        }
        cause = error.source();
    }
    text
}

/// Why a job was not started.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// There are as many running jobs as there may be.
    #[error("{running} jobs are running {place}, which is the limit")]
    Capacity {
        /// How many.
        running: usize,
        /// Where: on a host, or in all.
        place: String,
    },
    /// The host can't be reached.
    #[error(transparent)]
    Connect(#[from] Arc<ConnectError>),
    /// Every connection that the host may get is full.
    #[error("{0}")]
    ConnectionsFull(String),
    /// No channel could be opened.
    #[error("no channel to {host} can be opened")]
    Channel {
        /// The host.
        host: String,
        /// Why.
        source: ChannelError,
    },
    /// The server refused to run the command.
    #[error("{0} refused to run the command")]
    ExecRefused(String),
    /// The job can't be run as asked.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The host can't run durable jobs.
    #[error("{host} can't run durable jobs: {why}")]
    NotDurable {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
    /// Jobs are to be stored, and can't be: nobody would find a durable job again.
    #[error("a durable job could not be found again: {0}")]
    Unstored(String),
    /// A durable job can't be as asked.
    #[error(transparent)]
    Order(#[from] StartError),
    /// The files of a durable job can't be made on the host.
    #[error("the files of a durable job can't be made on {host}: {why}")]
    Spool {
        /// The host.
        host: String,
        /// Why.
        why: String,
    },
    /// The key was used for a job that is no longer kept.
    #[error("the idempotency key was used for a job that is no longer kept")]
    Expired(Box<Tombstone>),
    /// The key was used before, for something else.
    #[error("the idempotency key was used for another job")]
    KeyReused,
    /// Another process was to start it, and what it was to be given was kept nowhere.
    #[error(
        "the process that was to start it has ended, and with it the values of its variables and its text for stdin"
    )]
    SecretsGone,
    /// The job was ended, or its caller went away, before it had started.
    #[error("it was ended before it had started")]
    Abandoned,
    /// The runner is being shut down.
    #[error("the program is shutting down")]
    ShuttingDown,
}

/// Why a signal was not sent.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SignalError {
    /// The job is over, and nothing of it can be left.
    #[error("the job is over")]
    JobEnded,
    /// The host can't be reached to send it.
    #[error(transparent)]
    Unreachable(Arc<SpawnError>),
    /// The connection that the job ran on is gone, and no other can be shown to lead to the same machine.
    #[error("the job's connection is gone, and {host} {why}")]
    OtherMachine {
        /// The host.
        host: String,
        /// Why the host can't be shown to be the same machine.
        why: &'static str,
    },
    /// The host did not say in time whether the signal was delivered.
    #[error("the host did not answer within {0:?}")]
    TimedOut(Duration),
}

/// Why stdin was not written.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// Stdin has been closed, or never was open.
    #[error("the job's stdin is closed")]
    StdinClosed,
    /// The job is over.
    #[error("the job is over")]
    JobEnded,
    /// The host has not started the command yet.
    #[error("the job has not started yet")]
    Starting,
    /// The command does not read: its window stayed closed for the time given.
    #[error("the command does not read its stdin; {written} bytes were written")]
    Backpressure {
        /// Bytes that were sent.
        written: usize,
    },
    /// Another process records the job, and it alone writes to its stdin.
    #[error("the job's stdin is held by {0}")]
    NotOwner(String),
    /// The job has no terminal whose size could change.
    #[error("the job does not run on a terminal")]
    NoTerminal,
    /// The far end can't be reached.
    #[error(transparent)]
    FarEnd(#[from] FarEndError),
}

impl SpawnError {
    /// Whether nobody answers there: then another host may have been meant.
    pub fn is_unreachable(&self) -> bool {
        if let Self::Connect(error) = self { error.is_unreachable() } else { false }
    }

    pub(super) fn channel(job: &Job, source: ChannelError) -> Self {
        Self::Channel { host: job.spec.host.clone(), source }
    }
}

impl From<PoolError<ConnectError>> for SpawnError {
    fn from(error: PoolError<ConnectError>) -> Self {
        match error {
            PoolError::Connect(error) => Self::Connect(error),
            full @ PoolError::Full { .. } => Self::ConnectionsFull(full.to_string()),
        }
    }
}
