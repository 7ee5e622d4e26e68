//! A host: commands, files and forwards on it, and its key.

use std::fmt;
use std::path::PathBuf;

use sshjobs_core::jobs as core_jobs;
use sshjobs_core::jobs::{Command, ForwardOptions, ForwardSpec, Outcome};

use crate::error::Error;
#[cfg(feature = "files")]
use crate::files::RemoteFiles;
use crate::forward::Forward;
use crate::job::{Follow, Job};

/// A host, by its name. A cheap handle; connections are made when it is used, and shared.
#[derive(Clone)]
pub struct Host {
    jobs: core_jobs::Jobs,
    name: String,
}

/// The complete output of a command, and its end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Output {
    /// How the command ended.
    pub outcome: Outcome,
    /// All bytes of standard output.
    pub stdout: Vec<u8>,
    /// All bytes of standard error.
    pub stderr: Vec<u8>,
    /// Bytes that were evicted before they were read. None are, except of a durable job, and of an earlier job that an
    /// idempotency key has found.
    pub dropped_bytes: u64,
}

/// The key that a host presents; see [`Host::key`].
pub struct HostKey {
    key: core_jobs::HostKey,
}

impl Host {
    pub(crate) fn new(jobs: core_jobs::Jobs, name: String) -> Self {
        Self { jobs, name }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Connects and logs in, unless there is a live connection. Jobs do it, too; this shows at once
    /// whether the host can be used.
    ///
    /// # Errors
    /// Why the host can't be used.
    pub async fn connect(&self) -> Result<(), Error> {
        Ok(self.jobs.connect(&self.name).await?)
    }

    /// Starts a command, and returns once the host runs it. A job that waits for its turn, or that the host
    /// has not started within [`Command::start_within`], is returned as it is.
    ///
    /// If cancelled before the command was sent, nothing is started; later, the job continues and
    /// [`Jobs::list`](crate::Jobs::list) has it.
    ///
    /// # Errors
    /// If the command is invalid for any host, or the host can't be reached, can't be used or refuses
    /// it.
    pub async fn spawn(&self, command: &Command) -> Result<Job, Error> {
        Ok(Job::new(
            self.jobs.spawn(self.name.clone(), command.clone()).await?,
        ))
    }

    /// Runs a command to its end and returns its complete output, byte for byte, which must fit in
    /// memory. Dropping the future leaves the job running.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn). A command that fails is not an error: see [`Output::outcome`].
    pub async fn output(&self, command: &Command) -> Result<Output, Error> {
        let mut following = self.follow(command).await?;
        let mut stdout = Vec::new();
        let mut stderr = Vec::new();
        let mut dropped_bytes = 0;
        loop {
            let piece = following.next().await;
            stdout.extend_from_slice(&piece.stdout);
            stderr.extend_from_slice(&piece.stderr);
            dropped_bytes += piece.dropped_bytes;
            if let Some(outcome) = piece.outcome {
                return Ok(Output {
                    outcome,
                    stdout,
                    stderr,
                    dropped_bytes,
                });
            }
        }
    }

    /// Runs a command to its end and returns how it ended. Dropping the future leaves the job running.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn). A command that fails is not an error.
    pub async fn status(&self, command: &Command) -> Result<Outcome, Error> {
        let job = self.jobs.run(self.name.clone(), command.clone()).await?;
        Ok(job.wait().await)
    }

    /// Starts a command for one follower. The far end is held back while the follower is behind, as by
    /// a pipe, so that nothing is lost. The job has a connection of its own. Dropping the [`Follow`]
    /// stops holding the job back.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    pub async fn follow(&self, command: &Command) -> Result<Follow, Error> {
        let core = self.jobs.follow(self.name.clone(), command.clone()).await?;
        Ok(Follow::new(core))
    }

    /// Forwards a port or a socket through the host, over a connection of its own, until the
    /// [`Forward`] is closed or dropped. A lost connection is made again. Cancelling opens
    /// nothing.
    ///
    /// # Errors
    /// If the host can't be used, or nothing can listen there.
    pub async fn forward(&self, spec: ForwardSpec) -> Result<Forward, Error> {
        let options = ForwardOptions { idle: None };
        let status = self.jobs.open_forward(&self.name, spec, options).await?;
        Ok(Forward::new(self.jobs.clone(), status))
    }

    /// Files of the host, over SFTP.
    #[cfg(feature = "files")]
    pub fn files(&self) -> RemoteFiles {
        RemoteFiles::new(self.jobs.clone(), self.name.clone())
    }

    /// Asks the host for its key without logging in. Its jump hosts must be known.
    ///
    /// # Errors
    /// [`HostKey`](crate::ErrorKind::HostKey), if known_hosts lists another key or marks this one as
    /// revoked; or why the host can't be reached.
    pub async fn key(&self) -> Result<HostKey, Error> {
        let key = self.jobs.host_key(&self.name).await?;
        Ok(HostKey { key })
    }

    /// Writes the host's key to its first known_hosts file and returns that file. Compare
    /// [the fingerprint](HostKey::fingerprint) with the host's own before.
    ///
    /// # Errors
    /// If known_hosts conflicts with the key by now, or can't be written.
    pub async fn trust(&self, key: &HostKey) -> Result<PathBuf, Error> {
        Ok(self.jobs.trust(&key.key).await?)
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Host").field(&self.name).finish()
    }
}

impl fmt::Debug for HostKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("HostKey").field(&self.fingerprint()).finish()
    }
}

impl HostKey {
    /// Type and SHA-256 fingerprint of the key.
    pub fn fingerprint(&self) -> &str {
        &self.key.fingerprint
    }

    /// Whether known_hosts lists the host with this key already.
    pub fn is_known(&self) -> bool {
        self.key.is_known
    }
}
