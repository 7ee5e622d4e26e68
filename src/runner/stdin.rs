use std::sync::Arc;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::WriteError;
use crate::job::{Job, StdinPlan};
use crate::ssh::{ChannelError, ChannelWriter};

/// A job's stdin. Writers take turns; what the plan sends first goes first.
pub(super) struct Stdin {
    writer: ChannelWriter,
    job: Arc<Job>,
    state: Mutex<State>,
}

struct State {
    closed: bool,
    /// The last byte written ended a line, as far as a terminal is concerned.
    at_line_start: bool,
}

/// What a terminal takes for the end of input when it stands at the start of a line (VEOF).
const END_OF_INPUT: u8 = 4;
/// How long the prelude may take to make its terminal ready for the values.
const PRELUDE_TIMEOUT: Duration = Duration::from_secs(10);

impl Stdin {
    pub(super) fn new(writer: ChannelWriter, job: Arc<Job>) -> Self {
        Self { writer, job, state: Mutex::new(State { closed: false, at_line_start: true }) }
    }

    /// Sends what a job starts with: the prelude's values, then the text the command is to read, then its end.
    pub(super) async fn begin(&self, header: Option<SecretString>) -> Result<(), ChannelError> {
        let mut state = self.state.lock().await;
        if let Some(header) = header {
            self.announced(1).await?;
            self.write_all(header.expose_secret().as_bytes()).await?;
            self.announced(2).await?;
        }
        match &self.job.spec.stdin {
            StdinPlan::Open => return Ok(()),
            StdinPlan::Closed => {}
            StdinPlan::Text(text) => {
                let text = text.expose_secret().as_bytes();
                self.write_all(text).await?;
                state.wrote(text);
            }
        }
        self.end(&mut state).await
    }

    /// Waits until the prelude on a terminal has said so often where it is: once when it does not echo, twice when it has
    /// read the values. One that doesn't must not get them.
    async fn announced(&self, times: u32) -> Result<(), ChannelError> {
        if self.job.spec.terminal.is_none() {
            return Ok(());
        }
        self.job
            .wait_for(PRELUDE_TIMEOUT, |log| log.announcements() >= times || log.outcome().is_some())
            .await;
        if self.job.read_log(|log| log.announcements() >= times) {
            return Ok(());
        }
        self.writer.close().await?;
        Err(ChannelError::TimedOut(PRELUDE_TIMEOUT))
    }

    async fn write_all(&self, mut data: &[u8]) -> Result<(), ChannelError> {
        while !data.is_empty() {
            let written = self.writer.write(data).await?;
            data = &data[written..];
        }
        Ok(())
    }

    /// Writes `data` within `patience`. On backpressure the error says how much went.
    pub(super) async fn write(&self, data: &[u8], patience: Duration) -> Result<(), WriteError> {
        let deadline = Instant::now() + patience;
        let mut written = 0;
        let state = timeout_at(deadline, self.state.lock()).await;
        let mut state = state.map_err(|_| WriteError::Backpressure { written })?;
        if state.closed {
            return Err(WriteError::StdinClosed);
        }
        while written < data.len() {
            let piece = timeout_at(deadline, self.writer.write(&data[written..])).await;
            let length = piece.map_err(|_| WriteError::Backpressure { written })??;
            state.wrote(&data[written..written + length]);
            written += length;
        }
        Ok(())
    }

    /// Ends stdin, behind what others still write, within `patience`. It is no error when it has ended.
    pub(super) async fn close(&self, patience: Duration) -> Result<(), WriteError> {
        let closing = async {
            let mut state = self.state.lock().await;
            if state.closed { Ok(()) } else { self.end(&mut state).await }
        };
        let closed = timeout_at(Instant::now() + patience, closing).await;
        Ok(closed.map_err(|_| WriteError::Backpressure { written: 0 })??)
    }

    /// A terminal has no end of file; a key says it, and other keys can be pressed after it. In mid-line it takes two: the
    /// first hands the line over.
    async fn end(&self, state: &mut State) -> Result<(), ChannelError> {
        match &self.job.spec.terminal {
            None => {
                self.writer.eof().await?;
                state.closed = true;
                return Ok(());
            }
            Some(_) if state.at_line_start => self.write_all(&[END_OF_INPUT]).await?,
            Some(_) => self.write_all(&[END_OF_INPUT; 2]).await?,
        }
        state.at_line_start = true;
        Ok(())
    }

    /// Whether it has ended. While someone writes it has not.
    pub(super) fn is_closed(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| state.closed)
    }

    /// The channel's sending half, for signals and closing.
    pub(super) fn channel(&self) -> &ChannelWriter {
        &self.writer
    }
}

impl State {
    fn wrote(&mut self, data: &[u8]) {
        if let Some(last) = data.last() {
            self.at_line_start = matches!(*last, b'\n' | b'\r' | END_OF_INPUT);
        }
    }
}
