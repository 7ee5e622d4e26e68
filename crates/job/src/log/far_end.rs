//! The interface between a job and the place where it runs: events from there, commands to there.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use crate::{EndEvidence, Exit, Outcome, Signal};
use sshjobs_output::{OutputSource, TerminalSize};

/// Where a job runs. It reports events, and accepts commands through its [`Controls`].
///
/// Implementations are an attached job's channel, a durable job's follower and, in tests, a script
/// of events.
pub trait FarEnd: Send {
    /// The next event. Not called again after the [last one](FarEvent::is_last).
    ///
    /// Cancel safe. Events that are not received may block other jobs, so that calls wait only for
    /// the store, see [`Job::wait_for_store`](crate::Job::wait_for_store).
    fn next(&mut self) -> impl Future<Output = FarEvent> + Send;

    /// Where output stays that is not received yet.
    fn backlog(&self) -> Backlog;
}

/// Where a far end's output stays that is not received yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Backlog {
    /// The host keeps it, and the command continues.
    IsKeptByHost,
    /// It fills the channel's window. Then the command has to wait, and so do the other channels of the connection.
    BlocksTheCommand,
}

/// An event at a far end. The events of the end come in any order, and data may follow an exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarEvent {
    /// The host runs the command.
    Started,
    /// The host refuses to run the command.
    Refused,
    /// Bytes that the command wrote.
    Data(OutputSource, Bytes),
    /// No more data will come.
    Eof,
    /// How the command ended.
    Exit(Exit),
    /// Nothing more will come.
    Closed,
    /// The connection to the host is lost, and all later events with it.
    Lost,
    /// The host has reported the job's process group.
    ProcessGroup(u32),
    /// The far end itself reports the job's outcome. No event follows.
    Over(Outcome),
    /// Facts about the end, which follows.
    Evidence(EndEvidence),
    /// This process gives up the connection to the host. The job continues there and can be found
    /// again.
    Detached,
}

impl FarEvent {
    /// Whether no event follows.
    pub fn is_last(&self) -> bool {
        matches!(
            self,
            Self::Closed | Self::Lost | Self::Over(_) | Self::Detached
        )
    }
}

/// Commands to a job's far end. Every call except [`write`](Self::write) is bounded in time.
pub trait Controls: Send + Sync {
    /// Sends some of `data` to stdin and returns the number of bytes sent. Waits while the far end
    /// accepts none.
    ///
    /// Cancel safe: if the future is dropped, nothing was sent.
    fn write<'a>(&'a self, data: &'a [u8]) -> BoxFuture<'a, Result<usize, FarEndError>>;

    /// Closes stdin.
    fn eof(&self) -> BoxFuture<'_, Result<(), FarEndError>>;

    /// Requests a signal for the command. The far end does not reply, and may ignore the request.
    fn signal(&self, signal: Signal) -> BoxFuture<'_, Result<(), FarEndError>>;

    /// Sets the size of the terminal, in columns and rows.
    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), FarEndError>>;

    /// Closes the far end.
    fn close(&self) -> BoxFuture<'_, Result<(), FarEndError>>;

    /// Whether the job continues when this process ends. A shutdown does not end such a job.
    fn outlives_us(&self) -> bool;
}

/// Why a command to a far end failed.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum FarEndError {
    /// The connection was lost.
    #[error("the connection is lost")]
    ConnectionLost,
    /// The far end does not support the operation.
    #[error("the job {0}")]
    Unsupported(&'static str),
    /// Stdin is closed there.
    #[error("the job's stdin has ended")]
    StdinEnded,
    /// It did not answer in time.
    #[error("the server did not answer within {0:?}")]
    TimedOut(Duration),
}
