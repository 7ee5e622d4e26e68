//! Directories as tar streams, made and unpacked on this machine.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};

use super::local::{LocalEntry, LocalKind};
use crate::files::progress::Progress;

/// Writes entries below `root` as a tar stream.
pub(super) fn pack(
    root: &Path,
    entries: &[LocalEntry],
    progress: &Progress,
    stream: impl Write,
) -> io::Result<()> {
    let mut archive = tar::Builder::new(stream);
    archive.follow_symlinks(false);
    archive.mode(tar::HeaderMode::Complete);
    for entry in entries {
        let path = root.join(&entry.below);
        match entry.kind {
            LocalKind::Directory => archive.append_dir(&entry.below, &path)?,
            LocalKind::Symlink => archive.append_path_with_name(&path, &entry.below)?,
            LocalKind::File => {
                archive.append_file(&entry.below, &mut File::open(&path)?)?;
                progress.add(entry.size);
                progress.complete();
            }
            LocalKind::Other => {}
        }
    }
    archive.into_inner()?.flush()
}

/// What a tar stream had.
#[derive(Clone, Debug, Default)]
pub(super) struct Unpacked {
    pub(super) files: Vec<std::path::PathBuf>,
    pub(super) bytes: u64,
    /// All entries, of any kind.
    pub(super) entries: u64,
    /// Entries that are neither files nor directories nor links.
    pub(super) skipped: Vec<String>,
}

/// Unpacks a tar stream of a host into a new directory.
///
/// The stream is not trusted: entries that lead out of the directory, by their name or through a
/// link, are errors; devices are skipped; no file becomes setuid.
pub(super) fn unpack(
    stream: impl Read,
    into: &Path,
    preserve: bool,
    progress: &Progress,
) -> io::Result<Unpacked> {
    let mut archive = tar::Archive::new(stream);
    archive.set_preserve_permissions(false);
    archive.set_preserve_mtime(preserve);
    archive.set_unpack_xattrs(false);
    archive.set_overwrite(false);
    let mut unpacked = Unpacked::default();
    // Their permissions are set last: one could forbid to write into it.
    let mut directories = Vec::new();
    for entry in archive.entries()? {
        let mut entry = entry?;
        unpacked.entries += 1;
        let path = entry.path()?.into_owned();
        let Some(relative) = relative(&path) else { return Err(leads_out(&path)) };
        let kind = entry.header().entry_type();
        let is_directory = kind.is_dir();
        let is_file = kind.is_file() || kind.is_gnu_sparse();
        if !is_directory && !is_file && !kind.is_symlink() && !kind.is_hard_link() {
            unpacked.skipped.push(path.display().to_string());
            continue;
        }
        if is_directory {
            if !entry.unpack_in(into)? {
                return Err(leads_out(&path));
            }
            let mode = entry.header().mode()?;
            if preserve {
                directories.push((into.join(&relative), mode));
            } else if relative.as_os_str().is_empty() {
                // It was there before, with permissions of its own: not more than the host's.
                directories.push((into.to_owned(), mode & 0o755));
            }
            continue;
        }
        let size = entry.size();
        if !entry.unpack_in(into)? {
            return Err(leads_out(&path));
        }
        if is_file {
            unpacked.bytes += size;
            progress.add(size);
            progress.complete();
            unpacked.files.push(relative);
        }
    }
    set_modes(&directories)?;
    Ok(unpacked)
}

/// The path of an entry below the archive's root. `None` if it is absolute or leads out.
fn relative(path: &Path) -> Option<PathBuf> {
    let mut relative = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => relative.push(name),
            Component::CurDir => {}
            Component::RootDir | Component::ParentDir | Component::Prefix(_) => return None,
        }
    }
    Some(relative)
}

fn leads_out(path: &Path) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the host's archive has the entry {path:?}, which leads out of it"),
    )
}

fn set_modes(directories: &[(std::path::PathBuf, u32)]) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt;

    for (path, mode) in directories.iter().rev() {
        // A link in its place would change a directory elsewhere.
        if fs::symlink_metadata(path)?.is_dir() {
            fs::set_permissions(path, fs::Permissions::from_mode(mode & 0o777))?;
        }
    }
    Ok(())
}

/// Moves all that is in `from` into the directory `to`. Existing files are replaced, one by one and
/// each at once. Entries that can't be moved are returned.
pub(super) fn merge(from: &Path, to: &Path) -> io::Result<Vec<NotMoved>> {
    let mut not_moved = Vec::new();
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        let is_directory = entry.file_type()?.is_dir();
        if is_directory && is_real_directory(&target) {
            not_moved.extend(merge(&entry.path(), &target)?);
        } else if let Err(error) = fs::rename(entry.path(), &target) {
            not_moved.push(NotMoved { target, error });
        }
    }
    if not_moved.is_empty() {
        fs::remove_dir(from)?;
    }
    Ok(not_moved)
}

/// An entry that could not be moved.
#[derive(Debug)]
pub(super) struct NotMoved {
    pub(super) target: PathBuf,
    pub(super) error: io::Error,
}

/// Whether a path is a directory, and not a link to one: an earlier copy may have brought the link,
/// and it may lead anywhere.
pub(super) fn is_real_directory(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|metadata| metadata.is_dir())
}
