use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;

use super::{Exit, Outcome, Signal};
use crate::output::Stream;

/// Where a job runs. It reports events, and takes commands through its [`Controls`].
///
/// An attached job's channel is one implementation, a test's script of events another.
pub trait FarEnd: Send {
    /// The next event. After the [last one](FarEvent::is_last) nothing more is asked for.
    ///
    /// Cancel safe. Must be called without delay: events nobody takes may hold up other jobs.
    fn next(&mut self) -> impl Future<Output = FarEvent> + Send;
}

/// What can happen at a far end. The events of the end come in any order, and data may follow an exit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FarEvent {
    /// The host runs the command.
    Started,
    /// The host refuses to run the command.
    Refused,
    /// Bytes that the command wrote.
    Data(Stream, Bytes),
    /// No more data will come.
    Eof,
    /// How the command ended.
    Exit(Exit),
    /// Nothing more will come.
    Closed,
    /// The connection to the host is lost, and with it whatever else would have come.
    Lost,
    /// The host has told the job's process group.
    ProcessGroup(u32),
    /// The far end says itself what became of the job. Nothing more will come.
    Over(Outcome),
    /// The connection to the host is given up; the job goes on there, and can be found again.
    Detached,
}

impl FarEvent {
    /// Whether no event follows.
    pub fn is_last(&self) -> bool {
        matches!(self, Self::Closed | Self::Lost | Self::Over(_) | Self::Detached)
    }
}

/// What can be done to a job at its far end. Every call is bounded in time, but for [`write`](Self::write).
pub trait Controls: Send + Sync {
    /// Sends some of `data` to stdin and returns how many bytes went; waits while the far end takes none.
    ///
    /// Cancel safe: nothing was sent when the future is dropped.
    fn write<'a>(&'a self, data: &'a [u8]) -> BoxFuture<'a, Result<usize, FarEndError>>;

    /// Ends stdin.
    fn eof(&self) -> BoxFuture<'_, Result<(), FarEndError>>;

    /// Asks for the command to be signalled. There is no answer: a far end may ignore it silently.
    fn signal(&self, signal: Signal) -> BoxFuture<'_, Result<(), FarEndError>>;

    /// Tells the terminal's new size in columns and rows.
    fn resize(&self, size: (u32, u32)) -> BoxFuture<'_, Result<(), FarEndError>>;

    /// Closes the far end.
    fn close(&self) -> BoxFuture<'_, Result<(), FarEndError>>;

    /// Whether the job goes on when this process ends; then a shutdown leaves it alone.
    fn outlives_us(&self) -> bool;
}

/// Why a far end could not be reached.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum FarEndError {
    /// The connection is lost.
    #[error("the connection is lost")]
    ConnectionLost,
    /// It can't do this.
    #[error("a durable job {0}")]
    Unsupported(&'static str),
    /// Its stdin has ended there.
    #[error("the job's stdin has ended")]
    StdinEnded,
    /// It did not answer in time.
    #[error("the server did not answer within {0:?}")]
    TimedOut(Duration),
}
