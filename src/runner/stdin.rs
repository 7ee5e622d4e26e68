use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::WriteError;
use crate::job::StdinPlan;
use crate::ssh::{ChannelError, ChannelWriter};

/// A job's stdin. Writers take turns; what the plan sends first goes first.
pub(super) struct Stdin {
    writer: ChannelWriter,
    closed: Mutex<bool>,
}

impl Stdin {
    pub(super) fn new(writer: ChannelWriter) -> Self {
        Self { writer, closed: Mutex::new(false) }
    }

    /// Sends what a job starts with: the prelude's values, then the text the command is to read, then its end.
    pub(super) async fn begin(
        &self,
        header: Option<SecretString>,
        plan: &StdinPlan,
    ) -> Result<(), ChannelError> {
        let mut closed = self.closed.lock().await;
        if let Some(header) = header {
            self.write_all(header.expose_secret().as_bytes()).await?;
        }
        match plan {
            StdinPlan::Open => return Ok(()),
            StdinPlan::Closed => {}
            StdinPlan::Text(text) => self.write_all(text.expose_secret().as_bytes()).await?,
        }
        *closed = true;
        self.writer.eof().await
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
        let closed = timeout_at(deadline, self.closed.lock()).await;
        let closed = closed.map_err(|_| WriteError::Backpressure { written })?;
        if *closed {
            return Err(WriteError::StdinClosed);
        }
        while written < data.len() {
            written += timeout_at(deadline, self.writer.write(&data[written..]))
                .await
                .map_err(|_| WriteError::Backpressure { written })??;
        }
        Ok(())
    }

    /// Ends stdin, behind what others still write, within `patience`. It is no error when it has ended.
    pub(super) async fn close(&self, patience: Duration) -> Result<(), WriteError> {
        let turn = timeout_at(Instant::now() + patience, self.closed.lock()).await;
        let mut closed = turn.map_err(|_| WriteError::Backpressure { written: 0 })?;
        if !std::mem::replace(&mut *closed, true) {
            self.writer.eof().await?;
        }
        Ok(())
    }

    /// Whether it has ended. While someone writes it has not.
    pub(super) fn is_closed(&self) -> bool {
        self.closed.try_lock().is_ok_and(|closed| *closed)
    }

    /// The channel's sending half, for signals and closing.
    pub(super) fn channel(&self) -> &ChannelWriter {
        &self.writer
    }
}
