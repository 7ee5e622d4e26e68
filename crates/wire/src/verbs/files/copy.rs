//! What ssh_put copies from a path: a file or a directory, of this machine or of another host.

use std::fs::{File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::process::{Pid, getuid, test_kill_process};
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

/// The source of a copy to hosts.
#[derive(Clone)]
pub(in crate::verbs) enum CopySource {
    /// A file, and its permissions.
    File(LocalFile, u32),
    Directory(Arc<SourceDirectory>),
}

/// A directory with the files to copy.
pub(in crate::verbs) enum SourceDirectory {
    BelowRoot(DirectoryBelowRoot),
    /// A copy of another host's directory.
    Temporary(TemporaryCopy),
}

/// A copy that is removed when it is dropped.
pub(in crate::verbs) struct TemporaryCopy {
    directory: TempDir,
    /// Entries of the source host that could not be copied to this machine.
    left_out: CopiedTree,
}

impl Drop for TemporaryCopy {
    fn drop(&mut self) {
        make_removable(self.directory.path());
    }
}

impl SourceDirectory {
    pub(in crate::verbs) fn path(&self) -> PathBuf {
        match self {
            Self::BelowRoot(directory) => directory.path(),
            Self::Temporary(copy) => copy.directory.path().join(COPY),
        }
    }

    /// The result for the caller, with paths as the caller knows them.
    pub(in crate::verbs) fn copied(&self, report: TreeReport) -> CopiedTree {
        let mut tree = CopiedTree::of(report, &self.path(), "");
        if let Self::Temporary(TemporaryCopy { left_out, .. }) = self {
            tree.failed += left_out.failed;
            tree.failures.extend(left_out.failures.iter().cloned());
            tree.skipped.extend(left_out.skipped.iter().cloned());
        }
        tree
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
    /// The first 20 of them, with the reason.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub failures: Vec<String>,
    /// Devices, sockets and pipes, which are not copied.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
}

impl CopiedTree {
    /// What was copied. Paths below `local`, which the caller has not named so, begin with `named`.
    pub(in crate::verbs) fn of(report: TreeReport, local: &Path, named: &str) -> Self {
        let local = local.display().to_string();
        let failures = report
            .failed
            .iter()
            // The errors name the paths.
            .map(|(_, error)| error.to_string().replace(&local, named));
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
    pub(in crate::verbs) async fn copy_source(
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
                let source = file_source(path, file);
                source.map_err(|error| about("")(FilesError::local(path)(error)))
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
        let temporary = tokio::task::spawn_blocking(temporary_directory).await;
        let temporary = temporary.map_err(std::io::Error::other).flatten().map_err(no_room)?;
        let copy = temporary.path().join(COPY);
        if kind != FileKind::Directory {
            let progress = TransferProgress::default();
            jobs.get_file(at, &copy, GetOptions::default(), &progress).await?;
            // The file stays open, so its name is not needed.
            let source = File::open(&copy).and_then(|file| file_source(&copy, file));
            return source.map_err(no_room);
        }
        let progress = Arc::default();
        let report = jobs.get_tree(at, &copy, TreeOptions::default(), &progress).await?;
        let left_out = CopiedTree::of(report, &copy, &from.display().to_string());
        let directory = SourceDirectory::Temporary(TemporaryCopy {
            directory: temporary,
            left_out,
        });
        Ok(CopySource::Directory(Arc::new(directory)))
    }
}

fn file_source(path: &Path, file: File) -> std::io::Result<CopySource> {
    let mode = file.metadata()?.mode() & 0o777;
    Ok(CopySource::File(LocalFile::open(path, file)?, mode))
}

/// Start of the names of temporary directories; the id of their process follows.
const TEMPORARY: &str = "sshjobs-copy-";

/// A temporary directory that only this user may enter. Removes those of processes that were killed.
fn temporary_directory() -> std::io::Result<TempDir> {
    for entry in std::fs::read_dir(std::env::temp_dir())?.flatten() {
        let name = entry.file_name();
        let process =
            name.to_str().and_then(|name| name.strip_prefix(TEMPORARY)?.split('-').next());
        let process = process.and_then(|id| Pid::from_raw(id.parse().ok()?));
        let is_own = entry.metadata().is_ok_and(|found| found.uid() == getuid().as_raw());
        let is_left = process.is_some_and(|process| test_kill_process(process) == Err(Errno::SRCH));
        if is_own && is_left {
            let path = entry.path();
            make_removable(&path);
            if let Err(error) = std::fs::remove_dir_all(&path) {
                tracing::debug!(%error, ?path, "a copy of a process that was killed stays");
            }
        }
    }
    tempfile::Builder::new()
        .prefix(&format!("{TEMPORARY}{}-", std::process::id()))
        .permissions(Permissions::from_mode(0o700))
        .tempdir()
}

/// Lets the owner remove all that is in a directory. Its directories have the modes of a host's.
fn make_removable(directory: &Path) {
    let mut directories = vec![directory.to_owned()];
    while let Some(directory) = directories.pop() {
        if std::fs::set_permissions(&directory, Permissions::from_mode(0o700)).is_err() {
            continue;
        }
        let entries = std::fs::read_dir(&directory).into_iter().flatten().flatten();
        let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        directories.extend(below.map(|entry| entry.path()));
    }
}

/// What there is at a path of a host.
pub(in crate::verbs) async fn kind_at(jobs: &Jobs, at: HostPath<'_>) -> Result<FileKind, Error> {
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
