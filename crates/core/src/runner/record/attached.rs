//! The far end of an attached job: its SSH channel.

use std::collections::VecDeque;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use crate::runner::state::Meter;
use sshjobs_job::{Backlog, Controls, Exit, FarEnd, FarEndError, FarEvent, Signal};
use sshjobs_output::{Stream, TerminalSize};
use sshjobs_ssh::{ChannelError, ChannelEvent, ChannelReader, ChannelWriter};

/// The far end of an attached job: a session channel, which ends with this process.
pub(crate) struct Attached {
    pub(crate) reader: ChannelReader,
    /// Events that were read before recording began, oldest first.
    pub(crate) ahead: VecDeque<ChannelEvent>,
    pub(crate) meter: Meter,
}

impl FarEnd for Attached {
    async fn next(&mut self) -> FarEvent {
        let event = match self.ahead.pop_front() {
            Some(event) => Some(event),
            None => self.reader.next().await,
        };
        let event = event.map_or(FarEvent::Lost, translate);
        if let FarEvent::Data(_, bytes) = &event {
            self.meter.note(bytes.len());
        }
        event
    }

    fn backlog(&self) -> Backlog {
        Backlog::BlocksTheCommand
    }
}

/// A channel's events (RFC 4254) as those of a job's far end.
fn translate(event: ChannelEvent) -> FarEvent {
    match event {
        ChannelEvent::Data(bytes) => FarEvent::Data(Stream::Stdout.into(), bytes),
        ChannelEvent::ExtendedData(bytes) => FarEvent::Data(Stream::Stderr.into(), bytes),
        ChannelEvent::Eof => FarEvent::Eof,
        ChannelEvent::ExitStatus(status) => FarEvent::Exit(Exit::Status(status)),
        ChannelEvent::ExitSignal(signal) => FarEvent::Exit(Exit::Signal(signal)),
        ChannelEvent::Success => FarEvent::Started,
        ChannelEvent::Failure => FarEvent::Refused,
        ChannelEvent::Close => FarEvent::Closed,
    }
}

/// The sending half of an attached job's channel.
pub(crate) struct AttachedControls(pub(crate) ChannelWriter);

impl Controls for AttachedControls {
    fn write<'a>(&'a self, data: &'a [u8]) -> BoxFuture<'a, Result<usize, FarEndError>> {
        self.0.write(data).map(reached).boxed()
    }

    fn eof(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
        self.0.eof().map(reached).boxed()
    }

    fn signal(&self, signal: Signal) -> BoxFuture<'_, Result<(), FarEndError>> {
        self.0.signal(signal.name()).map(reached).boxed()
    }

    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), FarEndError>> {
        self.0.resize(size).map(reached).boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
        self.0.close().map(reached).boxed()
    }

    fn outlives_us(&self) -> bool {
        false
    }
}

fn reached<T>(result: Result<T, ChannelError>) -> Result<T, FarEndError> {
    result.map_err(|error| match error {
        ChannelError::TimedOut(limit) => FarEndError::TimedOut(limit),
        ChannelError::OpenRefused
        | ChannelError::PtyRefused
        | ChannelError::ConnectionLost
        | ChannelError::NoGreeting(_)
        | ChannelError::Silent => FarEndError::ConnectionLost,
    })
}
