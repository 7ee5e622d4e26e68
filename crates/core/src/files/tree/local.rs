//! The entries below a directory of this machine.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use cap_std::ambient_authority;
use cap_std::fs::{Dir, OpenOptions, OpenOptionsExt};
use rustix::fs::{Access, OFlags, access};

/// An entry below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalEntry {
    /// Path below the directory.
    pub(super) below: PathBuf,
    pub(super) kind: LocalKind,
    pub(super) size: u64,
    /// When its content was changed last, where the file system tells.
    pub(super) modified: Option<SystemTime>,
}

impl LocalEntry {
    /// Whether the file has been written to, replaced or removed since the directory was listed.
    pub(super) fn has_changed(&self, root: &Path) -> bool {
        match fs::symlink_metadata(root.join(&self.below)) {
            Ok(now) => (now.len(), now.modified().ok()) != (self.size, self.modified),
            Err(_) => true,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalKind {
    Directory,
    File,
    Symlink,
    /// A device, a socket or a pipe.
    Other,
}

/// Entries of a directory, and those that can't be read.
#[derive(Debug, Default)]
pub(super) struct Walked {
    /// Each directory before its entries.
    pub(super) entries: Vec<LocalEntry>,
    /// Entries that can't be read.
    pub(super) unreadable: Vec<(PathBuf, io::Error)>,
}

/// Opens a file below `root`. No link leads out of `root`, not even one that has taken the place of a
/// file or a directory since the walk.
pub(super) fn open_below(root: &Path, below: &Path) -> io::Result<File> {
    let root = Dir::open_ambient_dir(root, ambient_authority())?;
    let mut options = OpenOptions::new();
    // A pipe in the place of the file would be waited for.
    options.read(true).custom_flags(OFlags::NONBLOCK.bits().cast_signed());
    let file = root.open_with(below, &options)?.into_std();
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is no longer a regular file"));
    }
    Ok(file)
}

/// The target of a symbolic link below `root`. No link leads out of `root` to it.
pub(super) fn read_link_below(root: &Path, below: &Path) -> io::Result<PathBuf> {
    Dir::open_ambient_dir(root, ambient_authority())?.read_link_contents(below)
}

/// All entries below `root`. Symbolic links are not followed.
pub(super) fn walk(root: &Path) -> io::Result<Walked> {
    let mut walked = Walked::default();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let mut entries: Vec<_> = match fs::read_dir(root.join(&directory)) {
            Ok(entries) => entries.collect::<io::Result<_>>()?,
            Err(error) if directory.as_os_str().is_empty() => return Err(error),
            Err(error) => {
                walked.unreadable.push((directory, error));
                continue;
            }
        };
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let metadata = entry.metadata()?;
            let below = directory.join(entry.file_name());
            let kind = if metadata.is_dir() {
                directories.push(below.clone());
                LocalKind::Directory
            } else if metadata.is_file() {
                // Before anything is sent: within an archive it would end all.
                if let Err(error) = access(entry.path(), Access::READ_OK) {
                    walked.unreadable.push((below, error.into()));
                    continue;
                }
                LocalKind::File
            } else if metadata.is_symlink() {
                LocalKind::Symlink
            } else {
                LocalKind::Other
            };
            walked.entries.push(LocalEntry {
                below,
                kind,
                size: metadata.len(),
                modified: metadata.modified().ok(),
            });
        }
    }
    // Each directory is followed by all that is in it, because tar sets its mode at the first entry outside of it.
    walked.entries.sort_by(|one, other| one.below.cmp(&other.below));
    Ok(walked)
}
