//! A command that is followed byte by byte, here or on a server.

use std::sync::Arc;
use std::time::Duration;

use super::session::{Handle, JobSession};
use super::shown::NextBytes;
use crate::{Code, Error, JobEntry, JobState, Service, SignalReply, SignalRequest};
use sshjobs_core::jobs::{Follow, Job, TerminalSize};

/// A command that is being followed byte by byte.
pub enum Running {
    /// By this process.
    Here {
        /// The verbs.
        service: Service,
        /// The output.
        follow: Follow,
        /// Bytes that draw the screen of a job that was joined. They come first.
        redraw: Vec<u8>,
    },
    /// On a server.
    There(JobSession),
}

/// Controls a running command.
#[derive(Clone)]
pub enum Control {
    /// In this process.
    Here(Service, Job),
    /// On a server.
    There(Arc<Handle>),
}

/// Time limit for closing stdin.
const END_TIMEOUT: Duration = Duration::from_secs(10);

impl Running {
    /// Waits for the next bytes. Cancel safe: nothing is lost.
    ///
    /// # Errors
    /// If the server or the connection is lost.
    pub async fn next(&mut self) -> Result<NextBytes, Error> {
        match self {
            Self::Here { redraw, .. } if !redraw.is_empty() => Ok(NextBytes {
                stdout: std::mem::take(redraw),
                ..NextBytes::default()
            }),
            Self::Here { follow, .. } => {
                let output = follow.next().await;
                let ended = output.outcome.is_some().then(|| Box::new(JobEntry::of(follow.job())));
                let stdout = output.stdout;
                let stderr = output.stderr;
                Ok(NextBytes {
                    stdout,
                    stderr,
                    dropped_bytes: output.dropped_bytes,
                    ended,
                })
            }
            Self::There(session) => session.next().await,
        }
    }

    /// Its controls.
    pub fn control(&self) -> Control {
        match self {
            Self::Here {
                service, follow, ..
            } => Control::Here(service.clone(), follow.job().clone()),
            Self::There(session) => Control::There(Arc::clone(&session.handle)),
        }
    }
}

impl Control {
    /// The current state of the job. For a server's job, its state at the start.
    pub fn entry(&self) -> JobEntry {
        match self {
            Self::Here(_, job) => JobEntry::of(job),
            Self::There(handle) => handle.job.clone(),
        }
    }

    /// Writes to its stdin. Waits `patience` for a command that does not read; on a server, without
    /// limit. Cancelling may leave a part written.
    pub async fn write(&self, data: &[u8], patience: Duration) -> Result<(), Error> {
        match self {
            Self::Here(_, job) => Ok(job.write(data, patience).await?),
            Self::There(handle) => handle.write(data).await,
        }
    }

    /// Closes its stdin after the pending writes.
    pub async fn close_stdin(&self) -> Result<(), Error> {
        match self {
            Self::Here(_, job) => Ok(job.close_stdin(END_TIMEOUT).await?),
            Self::There(handle) => handle.close_stdin().await,
        }
    }

    /// Lets the job continue when this program and its session end. Needs a concurrent
    /// [`Running::next`].
    ///
    /// # Errors
    /// [`Code::Unsupported`] if it would end with this program's connection.
    pub async fn leave(&self) -> Result<(), Error> {
        let entry = self.entry();
        match self {
            Self::Here(..) if entry.standing.state == JobState::Queued => Err(Error::new(
                Code::Unsupported,
                "this program has to start the command when its turn comes",
                "use `sshjobs spawn`, which leaves that to a process in the background",
            )),
            Self::Here(..) | Self::There(_) if entry.durable => Ok(()),
            Self::Here(..) => Err(Error::new(
                Code::Unsupported,
                "the command ends with this connection, so it can't be left running",
                "start it with --durable, or through a server of your own (`sshjobs serve`)",
            )),
            Self::There(handle) => handle.leave().await,
        }
    }

    /// Sets the size of its terminal in columns and rows.
    pub async fn resize(&self, size: TerminalSize) -> Result<(), Error> {
        match self {
            Self::Here(_, job) => Ok(job.resize(size).await?),
            Self::There(handle) => handle.resize(size).await,
        }
    }

    /// Signals all of its processes. Cancelling may leave the signal sent.
    pub async fn signal(
        &self,
        signal: &str,
        grace: Option<Duration>,
    ) -> Result<SignalReply, Error> {
        let grace_ms = grace.map(|grace| i64::try_from(grace.as_millis()).unwrap_or(i64::MAX));
        let request = SignalRequest {
            signal: Some(signal.to_owned()),
            grace_ms,
            ..SignalRequest::new(self.entry().job_id)
        };
        match self {
            Self::Here(service, _) => service.signal(request).await,
            Self::There(handle) => handle.signal(&request).await,
        }
    }
}
