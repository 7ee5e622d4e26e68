//! Files of hosts: reading, writing and copying, with another attempt after a lost connection.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::time::sleep;

use super::error::Error;
use super::fleet::FleetSpec;
use super::jobs::Jobs;
use crate::admission::{CallPlace, HostAct};
use crate::files::{
    FileSource, FilesError, GetOptions, Got, HostFiles, Put, PutOptions, RemotePath, SyncOptions,
    SyncReport, TransferProgress, TreeOptions, TreeReport,
};
use crate::hosts::HostRef;
use sshjobs_policy::Verb;
use sshjobs_ssh::ConnectError;

/// Pauses before further attempts of a transfer that lost its connection.
const PAUSES: [Duration; 4] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(8),
];

/// A path on a host.
#[derive(Clone, Copy, Debug)]
pub struct HostPath<'a> {
    /// The host.
    pub host: &'a str,
    /// The path there.
    pub path: &'a RemotePath,
}

impl Jobs {
    /// The files of a host, over a connection of their own, to list and read them.
    ///
    /// # Errors
    /// [`Error::Refused`] if the host can't be used; [`Error::Files`] if it
    /// can't be reached or has no SFTP server.
    pub async fn files(&self, host: &str) -> Result<HostFiles, Error> {
        self.open_files(Verb::Get, host, None).await
    }

    /// Like [`files`](Self::files), for a file or directory that is known.
    ///
    /// # Errors
    /// As [`files`](Self::files).
    pub async fn files_at(&self, at: HostPath<'_>) -> Result<HostFiles, Error> {
        self.open_files(Verb::Get, at.host, Some(at.path)).await
    }

    /// Like [`files`](Self::files), for callers that also write.
    ///
    /// # Errors
    /// As [`files`](Self::files).
    pub async fn files_to_change(&self, host: &str) -> Result<HostFiles, Error> {
        self.open_files(self.changing, host, None).await
    }

    /// Like [`files_to_change`](Self::files_to_change), for a file or directory that is known.
    ///
    /// # Errors
    /// As [`files`](Self::files).
    pub async fn files_to_change_at(&self, at: HostPath<'_>) -> Result<HostFiles, Error> {
        self.open_files(self.changing, at.host, Some(at.path)).await
    }

    async fn open_files(
        &self,
        verb: Verb,
        host: &str,
        path: Option<&RemotePath>,
    ) -> Result<HostFiles, Error> {
        let path = path.map(ToString::to_string);
        let on = HostAct {
            path: path.as_deref(),
            ..self.on(host)
        };
        let permit = self.door.admission.admit_files(verb, on).await?;
        let becomes = self.context().becomes.as_ref();
        let files = HostFiles::open(&self.door.inside.hosts, &permit, becomes).await;
        self.noted(permit.host(), files)
    }

    /// Notes a failed connection for the list of hosts.
    fn noted(
        &self,
        host: &HostRef,
        opened: Result<HostFiles, FilesError>,
    ) -> Result<HostFiles, Error> {
        let opened = opened.map_err(|error| {
            if let FilesError::Connect(source) = error {
                let host = host.name.clone();
                Error::Connect { host, source }
            } else {
                error.into()
            }
        });
        self.door.note_connection(host, opened.as_ref().err());
        opened
    }

    /// The hosts that words name, for files that are written on each: names, ranges, patterns, tags
    /// and exclusions.
    ///
    /// # Errors
    /// [`Error::Refused`], before any host is asked.
    pub async fn hosts_for_files(&self, words: &[String]) -> Result<Vec<String>, Error> {
        let members = FleetSpec::of(words.iter().cloned()).plan(&self.door).await?.members;
        self.door.admission.find_hosts(self.changing, &members).await?;
        for member in members.iter() {
            let on = self.on(member);
            self.door.admission.check_user(self.changing, on).await?;
            // Recorded when the file is written.
            self.door.admission.ask(self.changing, on).await?;
        }
        Ok(members.to_vec())
    }

    /// Whether the policy lets the caller read files of a host, as the user that this handle becomes.
    pub async fn may_read_files(&self, host: &str) -> bool {
        self.door.admission.ask(Verb::Get, self.on(host)).await.is_ok()
    }

    /// A host, as the user that this handle becomes.
    fn on<'a>(&'a self, host: &'a str) -> HostAct<'a> {
        HostAct::place(CallPlace {
            host,
            becomes: self.context().becomes.as_ref(),
        })
    }

    /// Writes a file of a host at once: readers see the old content or the new one. After a lost
    /// connection the transfer continues where it broke, at most four times; a stream can't.
    ///
    /// Dropping the future leaves the old file.
    ///
    /// # Errors
    /// [`Error::Files`], for example [`FilesError::ChangedMeanwhile`].
    pub async fn put_file(
        &self,
        at @ HostPath { path, .. }: HostPath<'_>,
        source: FileSource,
        options: &PutOptions,
        progress: &TransferProgress,
    ) -> Result<Put, Error> {
        let may_read = self.may_read_files(at.host).await;
        let shown = move |error: FilesError| {
            if may_read {
                error
            } else {
                error.without_content()
            }
        };
        let Some(first) = source.again() else {
            let files = self.open_files(self.changing, at.host, Some(at.path)).await?;
            return Ok(files.put(path, source, options, progress).await.map_err(shown)?);
        };
        let mut attempt = Some((first, options.clone()));
        self.repeat(self.changing, at, |files| {
            let (content, options) = attempt.take().expect("the last attempt prepares the next");
            // The connection may have been lost after the file had been replaced.
            let next = PutOptions {
                is_repeated: true,
                ..options.clone()
            };
            attempt = content.again().map(|content| (content, next));
            async move { files.put(path, content, &options, progress).await.map_err(shown) }.boxed()
        })
        .await
    }

    /// Copies a file of a host to this machine, at once. After a lost connection the transfer
    /// continues where it broke, at most four times.
    ///
    /// # Errors
    /// [`Error::Files`].
    pub async fn get_file(
        &self,
        at @ HostPath { path, .. }: HostPath<'_>,
        local: &Path,
        options: GetOptions,
        progress: &TransferProgress,
    ) -> Result<Got, Error> {
        self.repeat(Verb::Get, at, |files| {
            async move { files.get(path, local, options, progress).await }.boxed()
        })
        .await
    }

    /// Copies a directory of this machine to a host, with all that is in it.
    ///
    /// # Errors
    /// [`Error::Files`]. Entries that fail are in the report.
    pub async fn put_tree(
        &self,
        local: &Path,
        at @ HostPath { path, .. }: HostPath<'_>,
        options: TreeOptions,
        progress: &Arc<TransferProgress>,
    ) -> Result<TreeReport, Error> {
        self.repeat(self.changing, at, |files| {
            async move { files.put_tree(local, path, options, progress).await }.boxed()
        })
        .await
    }

    /// Brings a directory of a host to the state of the working tree in a directory of this machine: sends what has changed,
    /// and deletes what is gone here and an earlier sync has written. After a lost connection it continues, at most four
    /// times.
    ///
    /// # Errors
    /// [`Error::Files`]. Entries that fail are in the report.
    pub async fn sync_to(
        &self,
        local: &Path,
        at @ HostPath { path, .. }: HostPath<'_>,
        options: &SyncOptions,
        progress: &Arc<TransferProgress>,
    ) -> Result<SyncReport, Error> {
        self.repeat(self.changing, at, |files| {
            async move { files.sync_to(local, path, options, progress).await }.boxed()
        })
        .await
    }

    /// Brings a directory of this machine to the state of a directory of a host, as [`sync_to`](Self::sync_to) in the other
    /// direction.
    ///
    /// # Errors
    /// [`Error::Files`]. Entries that fail are in the report.
    pub async fn sync_from(
        &self,
        at @ HostPath { path, .. }: HostPath<'_>,
        local: &Path,
        options: &SyncOptions,
        progress: &Arc<TransferProgress>,
    ) -> Result<SyncReport, Error> {
        self.repeat(Verb::Get, at, |files| {
            async move { files.sync_from(path, local, options, progress).await }.boxed()
        })
        .await
    }

    /// Copies a directory of a host to this machine, with all that is in it. Nothing is written
    /// outside of `local`.
    ///
    /// # Errors
    /// [`Error::Files`]. Entries that fail are in the report.
    pub async fn get_tree(
        &self,
        at @ HostPath { path, .. }: HostPath<'_>,
        local: &Path,
        options: TreeOptions,
        progress: &Arc<TransferProgress>,
    ) -> Result<TreeReport, Error> {
        self.repeat(Verb::Get, at, |files| {
            async move { files.get_tree(path, local, options, progress).await }.boxed()
        })
        .await
    }

    /// Copies a symbolic link of a host as a link.
    ///
    /// # Errors
    /// [`Error::Files`].
    pub async fn get_link(
        &self,
        at @ HostPath { path, .. }: HostPath<'_>,
        local: &Path,
    ) -> Result<(), Error> {
        self.repeat(Verb::Get, at, |files| {
            async move { files.get_link(path, local).await }.boxed()
        })
        .await
    }

    /// Attempts a transfer again, on a new connection, after it has lost its own. A host that can't
    /// be reached at first is not tried again.
    pub(super) async fn repeat<'a, T>(
        &self,
        verb: Verb,
        at: HostPath<'_>,
        mut transfer: impl FnMut(HostFiles) -> BoxFuture<'a, Result<T, FilesError>>,
    ) -> Result<T, Error> {
        let mut files = Some(self.open_files(verb, at.host, Some(at.path)).await?);
        for pause in PAUSES {
            let files = match files.take() {
                Some(files) => Ok(files),
                None => self.open_files(verb, at.host, Some(at.path)).await,
            };
            let done = match files {
                Ok(files) => transfer(files).await.map_err(Error::from),
                Err(error) => Err(error),
            };
            match done {
                Err(error) if is_broken(&error) => {
                    tracing::info!(%error, ?pause, "a transfer lost its connection and continues");
                    sleep(pause).await;
                }
                done => return done,
            }
        }
        let files = self.open_files(verb, at.host, Some(at.path)).await?;
        Ok(transfer(files).await?)
    }
}

/// Whether the connection was lost, or could not be made again.
pub(super) fn is_broken(error: &Error) -> bool {
    if let Error::Connect { source, .. } = error {
        return source.is_unreachable() || matches!(**source, ConnectError::TimedOut { .. });
    }
    matches!(error, Error::Files(error) if error.is_lost_connection())
}
