//! What ssh_put copies from a path: a file or a directory, of this machine or of another host.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::file_paths::about;
use crate::Service;
use crate::error::{Code, Error};
use crate::host_path::PathOnHosts;
use crate::leave_out::is_zero;
use crate::transfer_roots::{DirectoryBelowRoot, FoundBelowRoot};
use sshjobs_core::jobs::{
    FileKind, FilesError, GetOptions, HostPath, Jobs, LocalFile, TransferProgress, TreeOptions,
    TreeReport,
};

/// Entries that failed or were skipped and are named in a reply.
const MOST_NAMED: usize = 20;
/// Name of the copy within its temporary directory.
const COPY: &str = "copy";

/// What is copied to hosts.
#[derive(Clone)]
pub(super) enum CopySource {
    File(LocalFile),
    Directory(Arc<SourceDirectory>),
}

/// A directory with the files to copy.
pub(super) enum SourceDirectory {
    BelowRoot(DirectoryBelowRoot),
    /// A copy of another host's directory, which is removed when it is dropped.
    Temporary(TempDir),
}

impl SourceDirectory {
    pub(super) fn path(&self) -> PathBuf {
        match self {
            Self::BelowRoot(directory) => directory.path(),
            Self::Temporary(directory) => directory.path().join(COPY),
        }
    }
}

/// What was copied of a directory.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CopiedTree {
    /// Files that were written.
    pub written: u64,
    /// Files that had the same content.
    pub unchanged: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Number of entries that failed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub failed: u64,
    /// The first of them, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// Devices, sockets and pipes, which are not copied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

impl From<TreeReport> for CopiedTree {
    fn from(report: TreeReport) -> Self {
        let failures = report.failed.iter().map(|(path, error)| format!("{path}: {error}"));
        Self {
            written: report.written,
            unchanged: report.unchanged,
            bytes: report.bytes,
            failed: report.failed.len() as u64,
            failures: failures.take(MOST_NAMED).collect(),
            skipped: report.skipped.into_iter().take(MOST_NAMED).collect(),
        }
    }
}

impl Service {
    /// Opens what `from` names: an absolute path below a root for transfers, or `HOST:PATH`, which is
    /// copied to this machine first. A directory needs `recursive`.
    pub(super) async fn copy_source(
        &self,
        from: &str,
        recursive: bool,
    ) -> Result<CopySource, Error> {
        let path = Path::new(from);
        if !path.is_absolute() && PathOnHosts::parse(path).is_ok() {
            return self.copied_from_host(path, recursive).await;
        }
        match self.transfer_source(path)? {
            FoundBelowRoot::Directory(_) if !recursive => Err(is_a_directory(from)),
            FoundBelowRoot::Directory(directory) => {
                let directory = SourceDirectory::BelowRoot(directory);
                Ok(CopySource::Directory(Arc::new(directory)))
            }
            FoundBelowRoot::File(file) => {
                let local = LocalFile::open(path, file);
                let local = local.map_err(|error| about("")(FilesError::local(path)(error)))?;
                Ok(CopySource::File(local))
            }
        }
    }

    /// Copies a file or a directory of a host into a temporary directory. The host is read as the
    /// login user: another user is meant for the host that is written.
    async fn copied_from_host(&self, from: &Path, recursive: bool) -> Result<CopySource, Error> {
        let PathOnHosts { hosts: host, path } = PathOnHosts::parse(from)?;
        let jobs = self.jobs.with_context(|context| context.becomes = None);
        let at = HostPath {
            host: &host,
            path: &path,
        };
        let kind = kind_at(&jobs, at).await?;
        if kind == FileKind::Directory && !recursive {
            return Err(is_a_directory(&from.display().to_string()));
        }
        let temporary = tempfile::tempdir().map_err(no_room)?;
        let copy = temporary.path().join(COPY);
        if kind != FileKind::Directory {
            let progress = TransferProgress::default();
            jobs.get_file(at, &copy, GetOptions::default(), &progress).await?;
            let file = std::fs::File::open(&copy).and_then(|file| LocalFile::open(&copy, file));
            // The file stays open, so its name is not needed.
            return Ok(CopySource::File(file.map_err(no_room)?));
        }
        let progress = Arc::default();
        let report = jobs.get_tree(at, &copy, TreeOptions::default(), &progress).await?;
        if let Some((path, error)) = report.failed.first() {
            return Err(Error::new(
                Code::Io,
                format!(
                    "{} entries of {} could not be read, first {path}: {error}; nothing was written",
                    report.failed.len(),
                    from.display()
                ),
                "copy a directory whose files the login user can read",
            ));
        }
        let directory = SourceDirectory::Temporary(temporary);
        Ok(CopySource::Directory(Arc::new(directory)))
    }
}

/// What there is at a path of a host.
pub(super) async fn kind_at(jobs: &Jobs, at: HostPath<'_>) -> Result<FileKind, Error> {
    let files = jobs.files_at(at).await?;
    let path = files.expand(at.path).await.map_err(about(at.host))?;
    let found = files.stat(&path).await.map_err(about(at.host))?;
    Ok(found.kind())
}

fn is_a_directory(from: &str) -> Error {
    Error::invalid(
        format!("from: {from} is a directory"),
        "add recursive=true to copy it with all that is in it",
    )
}

fn no_room(error: std::io::Error) -> Error {
    Error::new(
        Code::Io,
        format!("can't keep a copy on this machine: {error}"),
        "make room in the directory for temporary files (TMPDIR) of the server",
    )
}
