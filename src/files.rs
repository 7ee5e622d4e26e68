//! Files of a host.

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use sshjobs_core::jobs as core_jobs;
use sshjobs_core::jobs::{
    FileKind, FileSource, FilesError, GetOptions, HostPath, LocalFile, PutOptions, RemotePath,
    TransferProgress, TreeOptions,
};

use crate::error::Error;

/// Files of a host, over SFTP; see [`Host::files`](crate::Host::files). A cheap handle.
///
/// A path of the host is bytes, relative to the home directory; `~/` is accepted. Every write is
/// verified and happens at once: readers see the old content or the new one. After a lost connection a
/// transfer continues where it broke, at most four times. Dropping a future leaves the old file.
#[derive(Clone)]
pub struct RemoteFiles {
    jobs: core_jobs::Jobs,
    host: String,
}

impl fmt::Debug for RemoteFiles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RemoteFiles").field(&self.host).finish()
    }
}

/// A file in a directory of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct DirEntry {
    /// Its name, as bytes: a host may use any encoding.
    pub name: Bytes,
    /// Its kind.
    pub kind: FileKind,
    /// Its size in bytes, if the host says it.
    pub size: Option<u64>,
}

/// What [`RemoteFiles::put_dir`] or [`RemoteFiles::get_dir`] did.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopiedDir {
    /// Number of files written.
    pub written: u64,
    /// Number of files that had the same content, and were not written.
    pub unchanged: u64,
    /// Files that were not copied, each with the reason.
    pub failed: Vec<String>,
}

/// Most bytes that [`RemoteFiles::read`] reads.
const MOST_READ: u64 = 256 << 20;

impl RemoteFiles {
    pub(crate) fn new(jobs: core_jobs::Jobs, host: String) -> Self {
        Self { jobs, host }
    }

    /// Reads a file of the host, at most 256 MiB.
    ///
    /// # Errors
    /// [`Files`](crate::ErrorKind::Files), also for a file that is longer; [`Refused`](crate::ErrorKind::Refused);
    /// or why the host can't be used.
    pub async fn read(&self, path: impl AsRef<[u8]>) -> Result<Bytes, Error> {
        let path = remote(path)?;
        let files = self.jobs.files_at(self.at(&path)).await?;
        files.read_whole(&path, MOST_READ).await.map_err(failed)
    }

    /// Writes a file of the host. Missing directories are made.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn write(
        &self,
        path: impl AsRef<[u8]>,
        content: impl Into<Bytes>,
    ) -> Result<(), Error> {
        self.put_source(path, FileSource::Memory(content.into())).await
    }

    /// Copies a file of this machine to the host. Missing directories are made.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn put(&self, local: impl AsRef<Path>, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let local = local.as_ref();
        let opened = tokio::fs::File::open(local).await;
        let opened = match opened {
            Ok(file) => LocalFile::open(local, file.into_std().await),
            Err(error) => Err(error),
        };
        let source = opened.map_err(FilesError::local(local)).map_err(failed)?;
        self.put_source(path, FileSource::File(source)).await
    }

    async fn put_source(&self, path: impl AsRef<[u8]>, source: FileSource) -> Result<(), Error> {
        let path = remote(path)?;
        let options = PutOptions {
            parents: true,
            ..PutOptions::default()
        };
        let progress = TransferProgress::default();
        self.jobs.put_file(self.at(&path), source, &options, &progress).await?;
        Ok(())
    }

    /// Copies a file of the host to this machine.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn get(&self, path: impl AsRef<[u8]>, local: impl AsRef<Path>) -> Result<(), Error> {
        let path = remote(path)?;
        let progress = TransferProgress::default();
        let options = GetOptions::default();
        self.jobs.get_file(self.at(&path), local.as_ref(), options, &progress).await?;
        Ok(())
    }

    /// Copies a directory of this machine to the host, with all that is in it.
    ///
    /// # Errors
    /// As [`read`](Self::read). Entries that fail are in the result.
    pub async fn put_dir(
        &self,
        local: impl AsRef<Path>,
        path: impl AsRef<[u8]>,
    ) -> Result<CopiedDir, Error> {
        let path = remote(path)?;
        let progress = Arc::new(TransferProgress::default());
        let options = TreeOptions::default();
        let report = self.jobs.put_tree(local.as_ref(), self.at(&path), options, &progress).await?;
        Ok(CopiedDir::of(report))
    }

    /// Copies a directory of the host to this machine, with all that is in it. Nothing is written
    /// outside of `local`.
    ///
    /// # Errors
    /// As [`read`](Self::read). Entries that fail are in the result.
    pub async fn get_dir(
        &self,
        path: impl AsRef<[u8]>,
        local: impl AsRef<Path>,
    ) -> Result<CopiedDir, Error> {
        let path = remote(path)?;
        let progress = Arc::new(TransferProgress::default());
        let options = TreeOptions::default();
        let report = self.jobs.get_tree(self.at(&path), local.as_ref(), options, &progress).await?;
        Ok(CopiedDir::of(report))
    }

    /// Lists a directory of the host.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn list(&self, directory: impl AsRef<[u8]>) -> Result<Vec<DirEntry>, Error> {
        let path = remote(directory)?;
        let files = self.jobs.files_at(self.at(&path)).await?;
        let entries = files.list(&path).await.map_err(failed)?;
        let entries = entries.into_iter().map(|entry| DirEntry {
            name: entry.name,
            kind: entry.attributes.kind(),
            size: entry.attributes.size,
        });
        Ok(entries.collect())
    }

    /// Removes a file of the host, or an empty directory.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub async fn remove(&self, path: impl AsRef<[u8]>) -> Result<(), Error> {
        let path = remote(path)?;
        let files = self.jobs.files_to_change_at(self.at(&path)).await?;
        files.remove(&path).await.map_err(failed)
    }

    fn at<'a>(&'a self, path: &'a RemotePath) -> HostPath<'a> {
        HostPath {
            host: &self.host,
            path,
        }
    }
}

fn remote(path: impl AsRef<[u8]>) -> Result<RemotePath, Error> {
    RemotePath::new(path.as_ref().to_vec()).map_err(|error| failed(error.into()))
}

fn failed(error: FilesError) -> Error {
    core_jobs::Error::from(error).into()
}

impl CopiedDir {
    fn of(report: core_jobs::TreeReport) -> Self {
        let failed = report.failed.into_iter();
        Self {
            written: report.written,
            unchanged: report.unchanged,
            failed: failed.map(|(path, why)| format!("{path}: {why}")).collect(),
        }
    }
}
