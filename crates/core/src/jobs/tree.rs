//! The working tree that a job is given.

use std::any::Any;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::{FutureExt, StreamExt, stream};

use super::error::Error;
use super::files::HostPath;
use super::jobs::Jobs;
use crate::files::{FilesError, Hasher, RemotePath, SyncOptions, SyncReport, TransferProgress};
use sshjobs_job::JobTree;

/// A working tree of this machine that a job is given.
#[derive(Clone)]
pub struct TreeToSend {
    /// The directory to read.
    pub local: PathBuf,
    /// The directory as the caller has named it.
    pub source: PathBuf,
    /// The directory on the host. By default one below [`TREES`] that is not changed while a job uses it.
    pub path: Option<String>,
    /// What is left out.
    pub options: SyncOptions,
    /// The patterns in `options`.
    pub excluded: Vec<String>,
    /// Keeps `local` valid.
    pub guard: Option<Arc<dyn Any + Send + Sync>>,
}

/// Directory of trees on a host.
const TREES: &str = "~/.cache/sshjobs/trees";
/// How long the tree of an ended job is not changed, if its files were not copied back.
const FETCH_TIME: Duration = Duration::from_secs(15 * 60);
/// Copies of one tree on a host.
const MOST_COPIES: u32 = 64;
/// Hosts to which a tree is sent at the same time.
const AT_A_TIME: usize = 16;
/// Characters of the source's name in the name of its directory.
const LONGEST_NAME: usize = 40;

impl Jobs {
    /// Progress of trees that are sent for jobs of this handle.
    pub fn tree_progress(&self) -> &Arc<TransferProgress> {
        &self.tree_progress
    }

    /// Brings a working tree to hosts, for jobs that are started there next.
    ///
    /// # Errors
    /// [`Error::Files`] for the first entry that can't be sent; [`Error::TreesInUse`] if jobs use all copies of the tree and
    /// it has changed since.
    pub async fn send_tree(&self, hosts: &[String], tree: &TreeToSend) -> Result<JobTree, Error> {
        let Some(path) = &tree.path else { return self.send_shared(hosts, tree).await };
        let report = self.send_to_all(hosts, tree, path, false).await?;
        Ok(job_tree(tree, path, report, false))
    }

    /// Sends the tree to the first copy that no job uses, or that is equal.
    async fn send_shared(&self, hosts: &[String], tree: &TreeToSend) -> Result<JobTree, Error> {
        let base = format!("{TREES}/{}", directory_name(&tree.source));
        let mut used = self.unfinished().await?;
        // Their files are still to be copied back.
        used.extend(self.recent_without_results(FETCH_TIME).await);
        let is_used = |path: &str| {
            used.iter().any(|job| {
                let is_same = job.facts.tree.as_ref().is_some_and(|tree| tree.path == path);
                is_same && job.facts.hosts().iter().any(|host| hosts.contains(host))
            })
        };
        for copy in 1..=MOST_COPIES {
            let path = if copy == 1 {
                base.clone()
            } else {
                format!("{base}.{copy}")
            };
            let report = self.send_to_all(hosts, tree, &path, is_used(&path)).await?;
            // The dry run of a directory that jobs use.
            if is_used(&path) && report.has_changes() {
                continue;
            }
            return Ok(job_tree(tree, &path, report, true));
        }
        Err(Error::TreesInUse(tree.source.display().to_string()))
    }

    /// Syncs the tree on each host. Returns the report of the last one, with the changes of all.
    async fn send_to_all(
        &self,
        hosts: &[String],
        tree: &TreeToSend,
        path: &str,
        dry_run: bool,
    ) -> Result<SyncReport, Error> {
        let path = RemotePath::new(path.as_bytes().to_vec()).map_err(FilesError::from)?;
        let options = SyncOptions {
            dry_run,
            ..tree.options.clone()
        };
        let syncs = hosts.iter().map(|host| self.send_to(host, tree, &path, &options).boxed());
        let syncs: Vec<_> = syncs.collect();
        let mut syncs = stream::iter(syncs).buffer_unordered(AT_A_TIME);
        let mut merged = SyncReport::default();
        while let Some(synced) = syncs.next().await {
            let synced = synced?;
            let has_changes = merged.has_changes();
            merged = if has_changes {
                synced.after(merged)
            } else {
                synced
            };
        }
        Ok(merged)
    }

    async fn send_to(
        &self,
        host: &str,
        tree: &TreeToSend,
        path: &RemotePath,
        options: &SyncOptions,
    ) -> Result<SyncReport, Error> {
        let at = HostPath { host, path };
        let synced = self.sync_to(&tree.local, at, options, &self.tree_progress).await?;
        // A command must not run in half a tree.
        match synced.failed.first() {
            Some((_, error)) => Err(Error::from(error.clone())),
            None => Ok(synced),
        }
    }
}

/// What a job records of its tree.
fn job_tree(tree: &TreeToSend, path: &str, report: SyncReport, is_shared: bool) -> JobTree {
    JobTree {
        path: path.to_owned(),
        source: tree.source.display().to_string(),
        commit: report.commit,
        hash: report.hash,
        excluded: tree.excluded.clone(),
        is_shared,
    }
}

/// A name for the directory of a tree on hosts: that of the source, and a hash of this machine and its path.
fn directory_name(source: &Path) -> String {
    let source = source.canonicalize().unwrap_or_else(|_| source.to_owned());
    let mut hasher = Hasher::default();
    hasher.update(rustix::system::uname().nodename().to_bytes());
    hasher.update(&[0]);
    hasher.update(source.as_os_str().as_bytes());
    let id: String = hasher.digest().to_string().chars().take(12).collect();
    let name = source.file_name().unwrap_or(OsStr::new("root")).to_string_lossy();
    // Plain, because commands see it as their directory.
    let name: String = name
        .chars()
        .map(|letter| {
            if letter.is_ascii_alphanumeric() || "._-".contains(letter) {
                letter
            } else {
                '_'
            }
        })
        .take(LONGEST_NAME)
        .collect();
    format!("{name}-{id}")
}

/// The working directory of a command that is given a tree: the tree, or what `cwd` names from there.
pub fn directory_in_tree(tree: &JobTree, cwd: Option<&str>) -> String {
    match cwd {
        None | Some("" | ".") => tree.path.clone(),
        Some(elsewhere) if elsewhere.starts_with(['/', '~']) => elsewhere.to_owned(),
        Some(below) => format!("{}/{below}", tree.path.trim_end_matches('/')),
    }
}
