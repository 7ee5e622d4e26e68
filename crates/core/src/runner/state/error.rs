//! Errors of the runner.

use std::sync::Arc;
use std::time::Duration;

use super::lookup::Tombstone;
use crate::hosts::{BecomeError, PoolError};
use sshjobs_job::spool::StartError;
use sshjobs_job::{FarEndError, Job, JobId, PlanError};
use sshjobs_ssh::{ChannelError, ConnectError};
use sshjobs_store::StoreError;

/// An error and its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let shown = error.to_string();
        // Some messages end with their cause already, such as that of `StoreError::Io`.
        if !text.ends_with(&shown) {
            text = format!("{text}: {shown}");
        }
        cause = error.source();
    }
    text
}

/// Why a job was not started.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SpawnError {
    /// The maximum number of jobs is running.
    #[error("{running} jobs are running {place}, which is the limit")]
    Capacity {
        /// Number of running jobs.
        running: usize,
        /// A host, or all hosts.
        place: String,
    },
    /// The host can't be reached.
    #[error(transparent)]
    Connect(#[from] Arc<ConnectError>),
    /// Every connection allowed for the host is full.
    #[error("{0}")]
    ConnectionsFull(String),
    /// No channel could be opened.
    #[error("no channel to {host} can be opened")]
    Channel {
        /// The host.
        host: String,
        /// The cause.
        source: ChannelError,
    },
    /// The server refused to run the command.
    #[error("{0} refused to run the command")]
    ExecRefused(String),
    /// The job's specification can't be run.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The host did not run the command as another user.
    #[error(transparent)]
    Become(#[from] Box<BecomeError>),
    /// The host can't run durable jobs.
    #[error("{host} can't run durable jobs: {why}")]
    NotDurable {
        /// The host.
        host: String,
        /// The reason.
        why: String,
    },
    /// Durable jobs need the job store, which can't be used: without it, no process would find the
    /// job again.
    #[error("a durable job could not be found again: {0}")]
    Unstored(String),
    /// In a cluster, a job that can't be registered would be unknown at the other replicas.
    #[error("the job can't be registered in the cluster: {0}")]
    Unregistered(String),
    /// Another replica of the cluster holds the host.
    #[error("the replica {holder} holds {host}, and hands it over once its jobs there have ended")]
    HeldElsewhere {
        /// The host.
        host: String,
        /// Name of the replica.
        holder: String,
    },
    /// The specification is not valid for a durable job.
    #[error(transparent)]
    Order(#[from] StartError),
    /// The files of a durable job can't be created on the host.
    #[error("the files of a durable job can't be made on {host}: {why}")]
    Spool {
        /// The host.
        host: String,
        /// The reason.
        why: String,
    },
    /// The key belongs to a job that is no longer kept.
    #[error("the idempotency key was used for a job that is no longer kept")]
    Expired(Box<Tombstone>),
    /// The key was used for another specification.
    #[error("the idempotency key was used for another job")]
    KeyReused,
    /// Another process was starting the job and ended. The job's secrets were stored nowhere.
    #[error(
        "the process that was to start it has ended, and with it the values of its \
         variables and its text for stdin"
    )]
    SecretsGone,
    /// The start was cancelled, by a signal or because the caller went away.
    #[error("it was ended before it had started")]
    Abandoned,
    /// A job after which it was to start has not succeeded.
    #[error("it was to start after the success of {}, which {why}", .job.as_str())]
    EarlierFailed {
        /// The job.
        job: JobId,
        /// How it ended.
        why: String,
    },
    /// The host's driver did not list its GPUs.
    #[error("the GPUs of {host} are not known: nvidia-smi {}", if *.status == 124 { "did not answer in time".to_owned() } else { format!("failed with exit status {}", .status) })]
    GpusUnknown {
        /// The host.
        host: String,
        /// The exit status of its driver; 124 after a time limit.
        status: u32,
    },
    /// The host will never have the GPUs that the job needs.
    #[error("{host} has {total} GPUs, of which {fitting} fit; the job needs {wanted}")]
    TooFewGpus {
        /// The host.
        host: String,
        /// What the job needs.
        wanted: String,
        /// How many fit.
        fitting: usize,
        /// How many there are.
        total: usize,
    },
    /// The queues can't be used.
    #[error("the queues can't be used: {0}")]
    Queue(String),
    /// The runner is being shut down.
    #[error("the program is shutting down")]
    ShuttingDown,
}

impl SpawnError {
    /// Whether the host is the cause, and not the call or this process.
    pub(crate) fn is_about_host(&self) -> bool {
        matches!(
            self,
            Self::Connect(_)
                | Self::ConnectionsFull(_)
                | Self::Channel { .. }
                | Self::ExecRefused(_)
                | Self::Become(_)
                | Self::NotDurable { .. }
                | Self::Spool { .. }
        )
    }
}

/// Why a signal was not sent.
#[derive(Clone, Debug, thiserror::Error)]
pub enum SignalError {
    /// The store, which knows where the job is, can't be read.
    #[error(transparent)]
    Store(StoreError),
    /// The job has ended, and none of its processes can be left.
    #[error("the job is over")]
    JobEnded,
    /// The host can't be reached to send it.
    #[error(transparent)]
    Unreachable(Arc<SpawnError>),
    /// The job's processes belong to another user, and the host did not change to that user to
    /// signal them.
    #[error(transparent)]
    Become(Box<BecomeError>),
    /// The job's connection was lost, and no other is known to lead to the same machine.
    #[error("the job's connection is gone, and {host} {why}")]
    OtherMachine {
        /// The host.
        host: String,
        /// Why the host can't be shown to be the same machine.
        why: &'static str,
    },
    /// Another machine of the cluster has taken the host over.
    #[error("another replica has taken the host over, and can signal the job")]
    Fenced,
    /// The host did not report within this time whether the signal was delivered.
    #[error("the host did not answer within {0:?}")]
    TimedOut(Duration),
}

/// Why stdin was not written.
#[derive(Clone, Debug, thiserror::Error)]
pub enum WriteError {
    /// Stdin has been closed or was never open.
    #[error("the job's stdin is closed")]
    StdinClosed,
    /// The job has ended.
    #[error("the job is over")]
    JobEnded,
    /// The host has not started the command yet.
    #[error("the job has not started yet")]
    Starting,
    /// The command does not read: its window stayed closed for the whole timeout.
    #[error("the command does not read its stdin; {written} bytes were written")]
    Backpressure {
        /// Bytes that were sent before the timeout.
        written: usize,
    },
    /// Another process holds the job's stdin and accepts no calls.
    #[error("the job's stdin is held by {0}, which takes no input from here")]
    NotOwner(String),
    /// The process that holds the job's stdin does not answer. It may have written part of the
    /// data.
    #[error("the process that holds the job's stdin does not answer: {0}")]
    OwnerGone(String),
    /// The job has no terminal to resize.
    #[error("the job does not run on a terminal")]
    NoTerminal,
    /// The far end can't be reached.
    #[error(transparent)]
    FarEnd(#[from] FarEndError),
}

impl SpawnError {
    /// Whether no server answered at the address, so the caller may have meant another host.
    pub fn is_unreachable(&self) -> bool {
        if let Self::Connect(error) = self {
            error.is_unreachable()
        } else {
            false
        }
    }

    /// Whether nothing was sent to the host that could run there now or later.
    pub fn has_started_nothing(&self) -> bool {
        matches!(
            self,
            Self::Capacity { .. }
                | Self::Connect(_)
                | Self::ConnectionsFull(_)
                | Self::Plan(_)
                | Self::Become(_)
                | Self::Unstored(_)
                | Self::HeldElsewhere { .. }
                | Self::Order(_)
                | Self::Abandoned
        )
    }

    /// Whether a channel was lost before anything could run on it.
    pub(crate) fn is_lost_channel(&self) -> bool {
        matches!(
            self,
            Self::Channel {
                source: ChannelError::ConnectionLost,
                ..
            }
        )
    }

    pub(crate) fn channel(job: &Job, source: ChannelError) -> Self {
        Self::Channel {
            host: job.spec.host.clone(),
            source,
        }
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
