//! Lets one process of this account at a time sync with a directory.
//!
//! Syncs of several machines, or to several hosts with the same home directory, may overlap: each stages its files in a
//! directory of its own, and replaces each file at once.
//! A lock on the host would outlive a connection that is cut.

use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use etcetera::BaseStrategy;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use tokio::time::{Instant, sleep};

use super::host_copy::refused;
use crate::files::host_files::HostFiles;
use crate::files::{FilesError, Hasher, RemotePath};

/// How long another sync is waited for.
const PATIENCE: Duration = Duration::from_secs(10 * 60);
/// Pause between attempts: flock(2) has no time limit.
const PAUSE: Duration = Duration::from_millis(100);
/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 16;

/// The right to sync a directory, until it is dropped.
pub(super) struct Exclusive {
    /// `None` on a machine where no lock file can be made.
    _locked: Option<File>,
}

impl Exclusive {
    /// Waits until no other process of this machine syncs to a directory of a host.
    pub(super) async fn to_host(
        files: &HostFiles,
        target: &RemotePath,
    ) -> Result<Self, FilesError> {
        let host = files.user.host.to_string();
        Self::take(&id(&[host.as_bytes(), target.as_bytes()]), target).await
    }

    /// Waits until no other process of this machine syncs `source` or another directory of a host to `local`.
    pub(super) async fn to_here(local: &Path, source: &RemotePath) -> Result<Self, FilesError> {
        let local = local.canonicalize().unwrap_or_else(|_| local.to_owned());
        Self::take(&id(&[local.as_os_str().as_bytes()]), source).await
    }

    async fn take(id: &str, target: &RemotePath) -> Result<Self, FilesError> {
        let file = match lock_file(id) {
            Ok(file) => file,
            Err(error) => {
                tracing::debug!(%error, "syncs of other processes can't be waited for");
                return Ok(Self { _locked: None });
            }
        };
        let deadline = Instant::now() + PATIENCE;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {
                    return Ok(Self {
                        _locked: Some(file),
                    });
                }
                Err(Errno::WOULDBLOCK) if Instant::now() < deadline => sleep(PAUSE).await,
                Err(Errno::WOULDBLOCK) => {
                    return Err(refused(
                        target,
                        "another process has been syncing it for ten minutes",
                    ));
                }
                Err(error) => {
                    tracing::debug!(%error, "syncs of other processes can't be waited for");
                    return Ok(Self { _locked: None });
                }
            }
        }
    }
}

/// Names syncs: by this machine, a directory of it, and the host.
pub(super) fn sync_id(files: &HostFiles, local: &Path) -> String {
    let machine = rustix::system::uname();
    let local = local.canonicalize().unwrap_or_else(|_| local.to_owned());
    let host = files.user.host.to_string();
    id(&[
        machine.nodename().to_bytes(),
        local.as_os_str().as_bytes(),
        host.as_bytes(),
    ])
}

fn id(parts: &[&[u8]]) -> String {
    let mut hasher = Hasher::default();
    for part in parts {
        hasher.update(part);
        hasher.update(&[0]);
    }
    hasher.digest().to_string().chars().take(ID_DIGITS).collect()
}

fn lock_file(id: &str) -> io::Result<File> {
    let directory = lock_directory()?;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&directory)?;
    let path = directory.join(id);
    File::options().create(true).truncate(false).write(true).mode(0o600).open(path)
}

fn lock_directory() -> io::Result<PathBuf> {
    let base = etcetera::choose_base_strategy().map_err(io::Error::other)?;
    Ok(base.cache_dir().join("sshjobs/syncs"))
}
