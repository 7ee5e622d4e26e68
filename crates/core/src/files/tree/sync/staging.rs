//! Sends small files and links as one tar stream into a directory of their own, from which they are renamed to their
//! places when they are verified.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use futures_util::{StreamExt, stream};
use sshjobs_tree::{EntryKind, FileFacts, SYNC_DIRECTORY, Tree};
use tokio_util::io::SyncIoBridge;

use super::host_copy::refused;
use crate::files::host_files::HostFiles;
use crate::files::progress::TransferProgress;
use crate::files::sftp::SftpRequest;
use crate::files::shell_command::directory_variable;
use crate::files::tree::archive::{OWNER_RWX, Packed, pack};
use crate::files::tree::local::{LocalEntry, LocalKind};
use crate::files::tree::put_tree::{NO_TAR, local_digests};
use crate::files::{Digest, FilesError, RemotePath};

/// Bytes between the thread that packs and the channel.
const PIPE_BYTES: usize = 1 << 20;
/// Requests that are sent at once. They are short, and only their answers are waited for.
const IN_FLIGHT: usize = 256;

/// Sends entries of a tree into the staging directory.
pub(super) struct Staging<'a> {
    pub(super) files: &'a HostFiles,
    pub(super) local: &'a Path,
    pub(super) target: &'a RemotePath,
    pub(super) source: &'a Tree,
    /// Name of the staging directory within [`SYNC_DIRECTORY`].
    pub(super) name: &'a str,
    pub(super) progress: &'a Arc<TransferProgress>,
}

/// Result of sending entries to the staging directory.
#[derive(Debug, Default)]
pub(super) struct Staged {
    /// Whether the host has unpacked everything. Otherwise the files have to be sent one by one: there is no tar, or a file
    /// has changed its size meanwhile.
    pub(super) is_complete: bool,
    /// Files that are verified, and their digests.
    pub(super) verified: Vec<(PathBuf, Digest)>,
    /// Files that changed while they were sent.
    pub(super) changed: Vec<PathBuf>,
    /// Bytes that were sent.
    pub(super) sent_bytes: u64,
}

impl Staging<'_> {
    fn directory(&self) -> RemotePath {
        self.target.join(format!("{SYNC_DIRECTORY}/{}", self.name).as_bytes())
    }

    /// The place of an entry in the staging directory.
    fn place(&self, below: &Path) -> RemotePath {
        self.directory().join(below.as_os_str().as_bytes())
    }

    /// Sends new directories, and files and links. `left` are the entries that a cut sync has left there.
    pub(super) async fn send(
        &self,
        directories: &[PathBuf],
        entries: &[PathBuf],
        left: &Tree,
    ) -> Result<Staged, FilesError> {
        let is_usable = self.clear_unusable(directories, entries, left).await?;
        let is_left = |path: &&PathBuf| is_usable && self.is_left(path, left);
        let missing = entries.iter().filter(|path| !is_left(path));
        let packed: Vec<LocalEntry> = directories
            .iter()
            .chain(missing)
            .collect::<BTreeSet<_>>()
            .into_iter()
            .filter_map(|path| local_entry(path, self.source.entries.get(path)?))
            .collect();
        let sent_bytes = packed
            .iter()
            .filter(|entry| entry.kind == LocalKind::File)
            .map(|entry| entry.size)
            .sum();
        if !packed.is_empty() && !self.unpack(packed).await? {
            return Ok(Staged::default());
        }
        let files: Vec<PathBuf> = entries
            .iter()
            .filter(|path| self.source.file(path).is_some())
            .cloned()
            .collect();
        let mut staged = self.verify(files).await?;
        staged.sent_bytes = sent_bytes;
        Ok(staged)
    }

    /// Removes entries that a cut sync has left and this one does not need. Returns whether the rest can be used.
    async fn clear_unusable(
        &self,
        directories: &[PathBuf],
        entries: &[PathBuf],
        left: &Tree,
    ) -> Result<bool, FilesError> {
        let directories: BTreeSet<&PathBuf> = directories.iter().collect();
        let entries: BTreeSet<&PathBuf> = entries.iter().collect();
        let above: BTreeSet<&Path> = entries.iter().flat_map(|path| path.ancestors()).collect();
        let mut unusable = Vec::new();
        for (path, kind) in &left.entries {
            match kind {
                EntryKind::Directory { .. }
                    if directories.contains(path) || above.contains(path.as_path()) => {}
                EntryKind::File(_) if entries.contains(path) => {
                    if !self.is_left(path, left) {
                        unusable.push(path);
                    }
                }
                EntryKind::Link { .. } if entries.contains(path) => unusable.push(path),
                // Anything else would get to a place where nothing belongs.
                EntryKind::Directory { .. }
                | EntryKind::File(_)
                | EntryKind::Link { .. }
                | EntryKind::Other => {
                    self.discard().await?;
                    return Ok(false);
                }
            }
        }
        for path in unusable {
            self.files.remove(&self.place(path)).await?;
        }
        Ok(true)
    }

    /// Whether a cut sync has left a file that seems to be whole. Its content is verified later.
    fn is_left(&self, path: &Path, left: &Tree) -> bool {
        match (self.source.file(path), left.file(path)) {
            (Some(wanted), Some(found)) => {
                (wanted.size, wanted.modified, wanted.mode)
                    == (found.size, found.modified, found.mode)
            }
            _ => false,
        }
    }

    /// Unpacks entries on the host. Returns false if the host has no tar that works, or a file has changed its size.
    async fn unpack(&self, entries: Vec<LocalEntry>) -> Result<bool, FilesError> {
        let (near, far) = tokio::io::duplex(PIPE_BYTES);
        let root = self.local.to_owned();
        let progress = Arc::clone(self.progress);
        let packing = tokio::task::spawn_blocking(move || {
            let mut stream = SyncIoBridge::new(near);
            let packed = pack(&root, &entries, &progress, &mut stream)?;
            if packed == Packed::All {
                stream.shutdown()?;
            }
            Ok(packed)
        });
        // -o: files belong to us, not to a user with the same number as here. -p: with the modes of the source.
        let script = format!(
            "tar -cf - /dev/null >/dev/null 2>&1 || exit {NO_TAR}; \
             {} umask 077; mkdir -p \"$d\" && exec tar -xopf - -C \"$d\"",
            directory_variable(&self.directory())
        );
        let mut nowhere = tokio::io::sink();
        let ended = self.files.run_script(script, far, &mut nowhere).await?;
        let packed = packing.await.map_err(io::Error::other).and_then(|packed| packed);
        if !ended.has_begun || ended.status == Some(NO_TAR) {
            return Ok(false);
        }
        match packed {
            Ok(Packed::UpToChangedFile) => return Ok(false),
            // A file is gone, or can't be read any more: one by one, the others are sent all the same.
            Err(error) if error.kind() != io::ErrorKind::BrokenPipe => return Ok(false),
            // A broken pipe only says that the command on the host ended first.
            Ok(Packed::All) | Err(_) => {}
        }
        if ended.status != Some(0) {
            self.discard().await.ok();
            return Err(refused(self.target, ended.stderr.trim()));
        }
        Ok(true)
    }

    /// Compares the staged files with those here.
    async fn verify(&self, files: Vec<PathBuf>) -> Result<Staged, FilesError> {
        let mut staged = Staged {
            is_complete: true,
            ..Staged::default()
        };
        let Ok(wanted) = local_digests(self.local, &files).await else {
            // A file is gone meanwhile.
            return Ok(Staged::default());
        };
        let found = self.files.digests_below(&self.directory(), &files).await;
        let Some(found) = found else {
            // The host has no tool for digests; the channel has its own checks.
            staged.verified = files.into_iter().zip(wanted).collect();
            return Ok(staged);
        };
        for (path, (wanted, found)) in files.into_iter().zip(wanted.into_iter().zip(found)) {
            if wanted == found {
                staged.verified.push((path, wanted));
            } else {
                staged.changed.push(path);
            }
        }
        Ok(staged)
    }

    /// Renames staged entries to their places. Returns those that failed.
    pub(super) async fn place_all(
        &self,
        entries: Vec<PathBuf>,
    ) -> Result<Vec<(PathBuf, FilesError)>, FilesError> {
        let renames = entries.into_iter().map(async |below| {
            let to = self.target.join(below.as_os_str().as_bytes());
            let renamed = self.files.replace(&self.place(&below), &to).await;
            (below, renamed)
        });
        let mut renames = stream::iter(renames.collect::<Vec<_>>()).buffer_unordered(IN_FLIGHT);
        let mut failed = Vec::new();
        while let Some((below, renamed)) = renames.next().await {
            match renamed {
                Err(error) if error.is_lost_connection() => return Err(error),
                Err(error) => failed.push((below, error)),
                Ok(()) => {}
            }
        }
        Ok(failed)
    }

    /// Removes a file that was staged.
    pub(super) async fn remove(&self, below: &Path) -> Result<(), FilesError> {
        self.files.remove(&self.place(below)).await
    }

    /// Gives new directories the modes of the source, the deepest first: those without rights for the owner can't be
    /// entered afterwards.
    pub(super) async fn restrict(&self, directories: &[PathBuf]) {
        for below in directories.iter().rev() {
            let Some(EntryKind::Directory { mode }) = self.source.entries.get(below) else {
                continue;
            };
            if mode & OWNER_RWX == OWNER_RWX {
                continue;
            }
            let path = self.target.join(below.as_os_str().as_bytes());
            let attributes = crate::files::Attributes::of_mode(*mode);
            let request = SftpRequest::Setstat(path.bytes(), attributes);
            if let Err(error) = self.files.session.status(request).await {
                tracing::debug!(%error, %path, "the mode of a directory stays");
            }
        }
    }

    /// Removes the staging directory.
    pub(super) async fn discard(&self) -> Result<(), FilesError> {
        let script = format!("{} rm -rf \"$d\"", directory_variable(&self.directory()));
        let mut nowhere = tokio::io::sink();
        self.files.run_script(script, tokio::io::empty(), &mut nowhere).await?;
        Ok(())
    }
}

/// An entry in the form that is packed.
fn local_entry(below: &Path, kind: &EntryKind) -> Option<LocalEntry> {
    let entry = |kind, size| LocalEntry {
        below: below.to_owned(),
        kind,
        size,
        modified: None,
    };
    Some(match kind {
        EntryKind::Directory { .. } => entry(LocalKind::Directory, 0),
        EntryKind::Link { .. } => entry(LocalKind::Symlink, 0),
        EntryKind::File(facts) => LocalEntry {
            modified: time_of(facts),
            ..entry(LocalKind::File, facts.size)
        },
        EntryKind::Other => return None,
    })
}

fn time_of(facts: &FileFacts) -> Option<std::time::SystemTime> {
    let seconds = u64::try_from(facts.modified).ok()?;
    UNIX_EPOCH.checked_add(Duration::new(seconds, facts.nanoseconds))
}
