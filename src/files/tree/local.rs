//! The entries below a directory of this machine.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// An entry below a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LocalEntry {
    /// Path below the directory.
    pub(super) below: PathBuf,
    pub(super) kind: LocalKind,
    pub(super) size: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocalKind {
    Directory,
    File,
    Symlink,
    /// A device, a socket or a pipe.
    Other,
}

/// All entries below `root`, each directory before its entries. Symbolic links are not followed.
pub(super) fn walk(root: &Path) -> io::Result<Vec<LocalEntry>> {
    let mut found = Vec::new();
    let mut directories = vec![PathBuf::new()];
    while let Some(directory) = directories.pop() {
        let mut entries: Vec<_> =
            fs::read_dir(root.join(&directory))?.collect::<io::Result<_>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let metadata = entry.metadata()?;
            let below = directory.join(entry.file_name());
            let kind = if metadata.is_dir() {
                directories.push(below.clone());
                LocalKind::Directory
            } else if metadata.is_file() {
                LocalKind::File
            } else if metadata.is_symlink() {
                LocalKind::Symlink
            } else {
                LocalKind::Other
            };
            found.push(LocalEntry {
                below,
                kind,
                size: metadata.len(),
            });
        }
    }
    Ok(found)
}
