//! The target directory on a host: its entries, and its manifest.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use futures_util::{StreamExt, stream};
use sshjobs_tree::{BadEntry, BadManifest, EntryKind, FileFacts, Manifest, SYNC_DIRECTORY, Tree};

use crate::files::host_files::{HostFiles, MOST_ENTRIES};
use crate::files::sftp::{Attributes, FileKind, SftpError, SftpStatus};
use crate::files::shell_command::directory_variable;
use crate::files::{FilesError, RemotePath};

/// Name of the manifest in the directory of syncs.
pub(in crate::files::tree) const MANIFEST: &str = "manifest";
/// Rules for git in the directory of syncs, in case that the tree is a repository.
pub(super) const IGNORED: &[u8] = b"*\n";
/// Exit status of the script if the directory does not exist.
const NO_DIRECTORY: u32 = 3;
/// Exit status of the script on a host without GNU find.
const NO_FIND: u32 = 4;
/// Maximum bytes of a list and a manifest.
const MOST_LISTED: usize = 256 << 20;
/// Maximum bytes of a manifest.
pub(in crate::files::tree) const MOST_MANIFEST: u64 = 256 << 20;
/// Directories listed at the same time on a host without GNU find.
const AT_A_TIME: usize = 32;

/// A directory of a host, as a sync finds it.
#[derive(Debug, Default)]
pub(super) struct HostCopy {
    /// Whether the directory exists.
    pub(super) exists: bool,
    /// Whether all of its directories could be listed. Writes into the others fail.
    pub(super) is_complete: bool,
    /// Its entries.
    pub(super) tree: Tree,
    /// The directory of syncs in it.
    pub(super) own: Tree,
    /// What earlier syncs have written.
    pub(super) manifest: Manifest,
}

impl HostFiles {
    /// Looks at a directory of the host.
    pub(super) async fn look_at_copy(&self, target: &RemotePath) -> Result<HostCopy, FilesError> {
        let script = format!(
            "{} cd -- \"$d\" 2>/dev/null || exit {NO_DIRECTORY}; \
             find . -prune -printf '' >/dev/null 2>&1 || exit {NO_FIND}; \
             LC_ALL=C find . -mindepth 1 -printf '{}'; s=$?; printf '\\000\\000\\000'; \
             m={SYNC_DIRECTORY}/{MANIFEST}; \
             [ ! -f $m ] || [ -h {SYNC_DIRECTORY} ] || [ -h $m ] || cat $m; exit $s",
            directory_variable(target),
            Tree::FIND_FORMAT
        );
        let mut printed = LimitedBuffer::default();
        let ended = self.run_script(script, tokio::io::empty(), &mut printed).await?;
        if !ended.has_begun || ended.status == Some(NO_FIND) {
            return self.walk_copy(target).await;
        }
        if ended.status == Some(NO_DIRECTORY) {
            return match self.find(target).await? {
                None => Ok(HostCopy::default()),
                Some(_) => Err(refused(target, "it is not a directory that can be entered")),
            };
        }
        // GNU find ends with 1 if it could not read some directories.
        if !matches!(ended.status, Some(0 | 1)) {
            return Err(refused(target, "the list of its files has broken off"));
        }
        let listed = Tree::from_find(&printed.bytes);
        let (tree, manifest) = listed.map_err(|error| bad_list(target, &error))?;
        Ok(HostCopy {
            is_complete: ended.status == Some(0),
            ..HostCopy::new(target, tree, manifest)?
        })
    }

    /// The same by SFTP, where the host has no GNU find.
    async fn walk_copy(&self, target: &RemotePath) -> Result<HostCopy, FilesError> {
        match self.find(target).await? {
            None => return Ok(HostCopy::default()),
            Some(found) if found.kind() == FileKind::Directory => {}
            Some(_) => return Err(refused(target, "it is not a directory")),
        }
        let mut tree = Tree::default();
        let mut is_complete = true;
        let mut directories = vec![PathBuf::new()];
        while !directories.is_empty() {
            let listing = std::mem::take(&mut directories).into_iter().map(async |below| {
                let path = target.join(below.as_os_str().as_bytes());
                (below, self.list(&path).await)
            });
            let mut listed = stream::iter(listing.collect::<Vec<_>>()).buffer_unordered(AT_A_TIME);
            while let Some((below, entries)) = listed.next().await {
                let entries = match entries {
                    Err(error) if error.is_lost_connection() => return Err(error),
                    Err(error) => {
                        tracing::debug!(%error, "a directory can't be listed");
                        is_complete = false;
                        continue;
                    }
                    Ok(entries) => entries,
                };
                for entry in entries {
                    let path = below.join(std::ffi::OsStr::from_bytes(&entry.name));
                    let kind = self.kind_of(target, &path, &entry.attributes).await?;
                    if matches!(kind, EntryKind::Directory { .. }) {
                        directories.push(path.clone());
                    }
                    tree.entries.insert(path, kind);
                }
                if tree.entries.len() > MOST_ENTRIES {
                    return Err(refused(target, "it has more than a million entries"));
                }
            }
        }
        let manifest = match tree.file(&Path::new(SYNC_DIRECTORY).join(MANIFEST)) {
            None => bytes::Bytes::new(),
            Some(_) => {
                let path = target.join(format!("{SYNC_DIRECTORY}/{MANIFEST}").as_bytes());
                self.read_whole(&path, MOST_MANIFEST).await?
            }
        };
        Ok(HostCopy {
            is_complete,
            ..HostCopy::new(target, tree, &manifest)?
        })
    }

    async fn kind_of(
        &self,
        target: &RemotePath,
        below: &Path,
        attributes: &Attributes,
    ) -> Result<EntryKind, FilesError> {
        let mode = attributes.permissions().unwrap_or_default() & 0o777;
        Ok(match attributes.kind() {
            FileKind::Directory => EntryKind::Directory { mode },
            FileKind::File => EntryKind::File(FileFacts {
                size: attributes.size.unwrap_or_default(),
                modified: attributes.times.map_or(0, |times| i64::from(times.modified)),
                nanoseconds: 0,
                mode,
            }),
            FileKind::Symlink => {
                let link = self.read_link(&target.join(below.as_os_str().as_bytes())).await?;
                EntryKind::Link {
                    target: std::ffi::OsStr::from_bytes(&link).into(),
                }
            }
            FileKind::Other => EntryKind::Other,
        })
    }
}

impl HostCopy {
    fn new(target: &RemotePath, mut tree: Tree, manifest: &[u8]) -> Result<Self, FilesError> {
        let own = Path::new(SYNC_DIRECTORY);
        match tree.entries.get(own) {
            None | Some(EntryKind::Directory { .. }) => {}
            Some(EntryKind::File(_) | EntryKind::Link { .. } | EntryKind::Other) => {
                let why = format!("{SYNC_DIRECTORY} in it is not a directory; remove it");
                return Err(refused(target, &why));
            }
        }
        let own = tree.split_off(own);
        let manifest = if manifest.is_empty() {
            Manifest::default()
        } else {
            Manifest::parse(manifest).map_err(|error: BadManifest| {
                refused(target, &format!("{error}; remove {SYNC_DIRECTORY} in it"))
            })?
        };
        Ok(Self {
            exists: true,
            is_complete: true,
            tree,
            own,
            manifest,
        })
    }
}

/// An error about the directory of a sync.
pub(super) fn refused(target: &RemotePath, why: &str) -> FilesError {
    let source = SftpError::Refused {
        status: SftpStatus::Failure,
        message: why.to_owned(),
    };
    FilesError::on("sync", target)(source)
}

fn bad_list(target: &RemotePath, error: &BadEntry) -> FilesError {
    refused(target, &error.to_string())
}

/// Output of a host, up to a limit. Writing more fails.
#[derive(Default)]
struct LimitedBuffer {
    bytes: Vec<u8>,
}

impl tokio::io::AsyncWrite for LimitedBuffer {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        if self.bytes.len() + bytes.len() > MOST_LISTED {
            let error = std::io::Error::other("the list is too long");
            return std::task::Poll::Ready(Err(error));
        }
        self.bytes.extend_from_slice(bytes);
        std::task::Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }

    fn poll_shutdown(
        self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::task::Poll::Ready(Ok(()))
    }
}
