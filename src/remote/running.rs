use std::sync::Arc;
use std::time::Duration;

use super::session::{Handle, Session};
use super::shown::Shown;
use crate::jobs::{Follow, Job};
use crate::wire::{Error, JobEntry, Service, SignalReply, SignalRequest};

/// A command that is being followed byte by byte.
pub enum Running {
    /// By this process.
    Here(Service, Follow),
    /// By a server.
    There(Session),
}

/// What a command is told while it runs.
#[derive(Clone)]
pub enum Control {
    /// In this process.
    Here(Service, Job),
    /// On a server.
    There(Arc<Handle>),
}

/// Time limit for the end of stdin to be told.
const END_TIMEOUT: Duration = Duration::from_secs(10);

impl Running {
    /// Waits for the next bytes. Cancel safe: nothing is lost.
    ///
    /// # Errors
    /// When the server, or the way there, is lost.
    pub async fn next(&mut self) -> Result<Shown, Error> {
        match self {
            Self::Here(_, follow) => {
                let output = follow.next().await;
                let ended = output.outcome.is_some().then(|| Box::new(JobEntry::of(follow.job())));
                let (stdout, stderr) = (output.stdout, output.stderr);
                Ok(Shown { stdout, stderr, dropped_bytes: output.dropped_bytes, ended })
            }
            Self::There(session) => session.next().await,
        }
    }

    /// What it is told.
    pub fn control(&self) -> Control {
        match self {
            Self::Here(service, follow) => Control::Here(service.clone(), follow.job().clone()),
            Self::There(session) => Control::There(Arc::clone(&session.handle)),
        }
    }
}

impl Control {
    /// The job as it stands; of a server's, as it was when it began.
    pub fn entry(&self) -> JobEntry {
        match self {
            Self::Here(_, job) => JobEntry::of(job),
            Self::There(handle) => handle.job.clone(),
        }
    }

    /// Writes to its stdin; waits `patience` for a command that does not read, on a server for ever. Cancelling may leave a part
    /// written.
    pub async fn write(&self, data: &[u8], patience: Duration) -> Result<(), Error> {
        match self {
            Self::Here(_, job) => Ok(job.write(data, patience).await?),
            Self::There(handle) => handle.write(data).await,
        }
    }

    /// Ends its stdin, behind what is still being written.
    pub async fn close_stdin(&self) -> Result<(), Error> {
        match self {
            Self::Here(_, job) => Ok(job.close_stdin(END_TIMEOUT).await?),
            Self::There(handle) => handle.close_stdin().await,
        }
    }

    /// Tells its terminal a new size in columns and rows.
    pub async fn resize(&self, size: (u32, u32)) -> Result<(), Error> {
        match self {
            Self::Here(_, job) => Ok(job.resize(size).await?),
            Self::There(handle) => handle.resize(size).await,
        }
    }

    /// Signals its process tree. Cancelling may leave the signal sent.
    pub async fn signal(&self, signal: &str, grace: Option<Duration>) -> Result<SignalReply, Error> {
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
