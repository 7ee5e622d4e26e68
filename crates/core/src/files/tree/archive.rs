//! Directories as tar streams, made and unpacked on this machine.

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Component, Path, PathBuf};

use cap_std::ambient_authority;
use cap_std::fs::{Dir, PermissionsExt as _};

use super::local::{LocalEntry, LocalKind, open_below, read_link_below};
use crate::files::progress::TransferProgress;

/// Permission bits with which the owner can list, change and enter a directory.
pub(super) const OWNER_RWX: u32 = 0o700;

/// Whether all entries were packed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packed {
    All,
    /// Up to a file whose size has changed meanwhile. Its header does not fit, so the stream ends there.
    UpToChangedFile,
}

/// Writes entries below `root` as a tar stream. Every directory gets u+rwx in it, because many programs can't unpack into
/// a read-only one.
pub(super) fn pack(
    root: &Path,
    entries: &[LocalEntry],
    progress: &TransferProgress,
    stream: impl Write,
) -> io::Result<Packed> {
    let mut archive = tar::Builder::new(stream);
    archive.follow_symlinks(false);
    archive.mode(tar::HeaderMode::Complete);
    for entry in entries {
        let path = root.join(&entry.below);
        match entry.kind {
            LocalKind::Directory => {
                let mut header = tar::Header::new_gnu();
                header.set_metadata(&fs::symlink_metadata(&path)?);
                header.set_mode(header.mode()? | OWNER_RWX);
                header.set_size(0);
                archive.append_data(&mut header, &entry.below, io::empty())?;
            }
            LocalKind::Symlink => append_link(&mut archive, root, &entry.below)?,
            LocalKind::File => {
                let appended = append_file(&mut archive, root, &entry.below);
                if appended.map_err(with_path(&path))? == Packed::UpToChangedFile {
                    return Ok(Packed::UpToChangedFile);
                }
                progress.add(entry.size);
                progress.complete();
            }
            LocalKind::Other => {}
        }
    }
    archive.into_inner()?.flush()?;
    Ok(Packed::All)
}

/// Appends a symbolic link of this machine, as a link.
fn append_link(
    archive: &mut tar::Builder<impl Write>,
    root: &Path,
    below: &Path,
) -> io::Result<()> {
    let target = read_link_below(root, below)?;
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Symlink);
    header.set_mode(0o777);
    header.set_size(0);
    archive.append_link(&mut header, below, target)
}

/// Appends a file of this machine.
fn append_file(
    archive: &mut tar::Builder<impl Write>,
    root: &Path,
    below: &Path,
) -> io::Result<Packed> {
    let mut file = open_below(root, below)?;
    let size = file.metadata()?.len();
    let appended = archive.append_file(below, &mut file);
    // A search for holes fails if the file grows meanwhile, but a broken pipe concerns the stream.
    let has_changed = match &appended {
        Ok(()) => file.stream_position()? != size,
        Err(error) => error.kind() != io::ErrorKind::BrokenPipe && file.metadata()?.len() != size,
    };
    if has_changed {
        return Ok(Packed::UpToChangedFile);
    }
    appended.map(|()| Packed::All)
}

/// Adds a path to an error that concerns its file. A broken pipe concerns the stream.
fn with_path(path: &Path) -> impl FnOnce(io::Error) -> io::Error {
    move |error| {
        if error.kind() == io::ErrorKind::BrokenPipe {
            error
        } else {
            io::Error::new(error.kind(), format!("{}: {error}", path.display()))
        }
    }
}

/// What a tar stream had.
#[derive(Clone, Debug, Default)]
pub(super) struct Unpacked {
    pub(super) files: Vec<PathBuf>,
    /// Each directory before those below it.
    pub(super) directories: Vec<HostDirectory>,
    pub(super) bytes: u64,
    /// All entries, of any kind.
    pub(super) entries: u64,
    /// Entries that are neither files nor directories nor links.
    pub(super) skipped: Vec<String>,
}

/// A directory of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HostDirectory {
    /// Path below the archive's root.
    pub(super) below: PathBuf,
    /// Permission bits that it is to have.
    pub(super) mode: u32,
}

/// Attributes that unpacked entries keep.
#[derive(Clone, Copy, Debug)]
pub(super) struct KeptAttributes {
    /// Permission bits that they lose.
    pub(super) umask: u32,
    /// Whether they keep their times.
    pub(super) times: bool,
}

/// Unpacks a tar stream of a host into a new directory. Unpacked directories have u+rwx. The caller sets their real modes
/// after it has moved them.
///
/// The stream is not trusted: entries that lead out of the directory, by their name or through a
/// link, are errors; devices are skipped; no file becomes setuid.
pub(super) fn unpack(
    stream: impl Read,
    into: &Path,
    kept: KeptAttributes,
    progress: &TransferProgress,
) -> io::Result<Unpacked> {
    let mut archive = tar::Archive::new(stream);
    archive.set_preserve_permissions(false);
    archive.set_mask(kept.umask);
    archive.set_preserve_mtime(kept.times);
    archive.set_unpack_xattrs(false);
    archive.set_overwrite(false);
    let mut unpacked = Unpacked::default();
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
            let mode = entry.header().mode()? & 0o777 & !kept.umask;
            // Other users may not enter the directory itself before all of it has its mode.
            if relative.as_os_str().is_empty() {
                unpacked.directories.push(HostDirectory {
                    below: relative,
                    mode,
                });
                continue;
            }
            if !entry.unpack_in(into)? {
                return Err(leads_out(&path));
            }
            set_mode(&into.join(&relative), mode | OWNER_RWX)?;
            unpacked.directories.push(HostDirectory {
                below: relative,
                mode,
            });
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

/// Sets the mode of a directory. Does nothing if the path is not a directory.
pub(super) fn set_mode(directory: &Path, mode: u32) -> io::Result<()> {
    // A link in its place would change a directory elsewhere.
    if is_real_directory(directory) {
        fs::set_permissions(directory, Permissions::from_mode(mode))?;
    }
    Ok(())
}

/// What [`merge`] has done.
#[derive(Debug, Default)]
pub(super) struct Merged {
    /// Entries that could not be moved.
    pub(super) not_moved: Vec<NotMoved>,
    /// Directories that were there before, as paths below the target.
    pub(super) existing: BTreeSet<PathBuf>,
}

/// Moves all that is in the directory `from` into the directory `to`. Existing files and links are replaced one by one, in
/// one step each; only a link in the place of a directory is removed first. No link leads out of `to`, not even one that
/// takes the place of a directory meanwhile.
pub(super) fn merge(from: &Path, to: &Path) -> io::Result<Merged> {
    let merging = Merging {
        from: open_directory(from)?,
        to: open_directory(to)?,
        target: to,
    };
    let mut merged = Merged::default();
    let mut restricted = Vec::new();
    let moved = merging.move_entries(&mut merged, &mut restricted);
    let mut restored = Ok(());
    // The deepest first: the mode of a directory may forbid to enter it.
    for directory in restricted.into_iter().rev() {
        restored = restored.and(set_mode_below(
            &merging.to,
            &directory.below,
            directory.mode,
        ));
    }
    moved.and(restored)?;
    Ok(merged)
}

/// Opens a directory. Its last name may be no link that leads out of the directory before it.
pub(super) fn open_directory(path: &Path) -> io::Result<Dir> {
    match (path.parent(), path.file_name()) {
        (Some(parent), Some(name)) if !parent.as_os_str().is_empty() => {
            Dir::open_ambient_dir(parent, ambient_authority())?.open_dir(name)
        }
        _ => Dir::open_ambient_dir(path, ambient_authority()),
    }
}

/// An existing directory that was made writable for the merge.
struct Restricted {
    below: PathBuf,
    /// The mode to restore.
    mode: u32,
}

/// A merge of one directory into another.
struct Merging<'a> {
    from: Dir,
    to: Dir,
    /// The path of `to`, for messages.
    target: &'a Path,
}

impl Merging<'_> {
    fn move_entries(
        &self,
        merged: &mut Merged,
        restricted: &mut Vec<Restricted>,
    ) -> io::Result<()> {
        let mut directories = vec![PathBuf::new()];
        while let Some(below) = directories.pop() {
            let mode = self.to.metadata(or_itself(&below))?.permissions().mode();
            if mode & OWNER_RWX != OWNER_RWX {
                if let Err(error) = set_mode_below(&self.to, &below, mode | OWNER_RWX) {
                    let target = self.target.join(&below);
                    merged.not_moved.push(NotMoved { target, error });
                    continue;
                }
                restricted.push(Restricted {
                    below: below.clone(),
                    mode,
                });
            }
            for entry in self.from.read_dir(or_itself(&below))? {
                let entry = entry?;
                let entry_below = below.join(entry.file_name());
                let is_directory = entry.file_type()?.is_dir();
                if is_directory && self.is_directory_there(&entry_below) {
                    directories.push(entry_below);
                } else if let Err(error) = self.replace(&entry_below, is_directory) {
                    let target = self.target.join(&entry_below);
                    merged.not_moved.push(NotMoved { target, error });
                }
            }
            merged.existing.insert(below);
        }
        Ok(())
    }

    fn is_directory_there(&self, below: &Path) -> bool {
        self.to.symlink_metadata(below).is_ok_and(|found| found.is_dir())
    }

    /// Moves an entry, in the place of an existing file or link.
    fn replace(&self, below: &Path, is_directory: bool) -> io::Result<()> {
        let is_link = self.to.symlink_metadata(below).is_ok_and(|found| found.is_symlink());
        // A directory can't be renamed over a link.
        if is_directory && is_link {
            self.to.remove_file(below)?;
        }
        self.from.rename(below, &self.to, below)
    }
}

/// Sets the mode of a directory below another one. Does nothing if the path is not a directory: a link
/// in its place would change a directory elsewhere.
pub(super) fn set_mode_below(root: &Dir, below: &Path, mode: u32) -> io::Result<()> {
    let below = or_itself(below);
    if root.symlink_metadata(below)?.is_dir() {
        let permissions = Permissions::from_mode(mode);
        root.set_permissions(below, cap_std::fs::Permissions::from_std(permissions))?;
    }
    Ok(())
}

/// A path below a directory, or the directory itself.
fn or_itself(below: &Path) -> &Path {
    if below.as_os_str().is_empty() {
        Path::new(".")
    } else {
        below
    }
}

/// Removes a path if it is a symbolic link, which may lead anywhere.
pub(super) fn remove_link(path: &Path) -> io::Result<()> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.is_symlink()) {
        fs::remove_file(path)?;
    }
    Ok(())
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;
    use crate::files::tree::local::walk;

    const LARGE: u64 = 1 << 20;

    /// Gives a file another size when much of it has been written.
    struct Resizing {
        written: u64,
        file: File,
        size: u64,
    }

    impl Write for Resizing {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.written += bytes.len() as u64;
            if self.written > LARGE / 4 {
                self.file.set_len(self.size)?;
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_file_whose_size_changes_while_it_is_packed_ends_the_stream() {
        for (size, packed) in [
            (LARGE, Packed::All),
            (LARGE + 1, Packed::UpToChangedFile),
            (LARGE / 2, Packed::UpToChangedFile),
        ] {
            let root = tempfile::tempdir().unwrap();
            let path = root.path().join("log");
            let content = io::repeat(b'x').take(LARGE);
            io::copy(&mut { content }, &mut File::create(&path).unwrap()).unwrap();
            let stream = Resizing {
                written: 0,
                file: File::options().write(true).open(&path).unwrap(),
                size,
            };
            let entries = walk(root.path()).unwrap().entries;
            let found = pack(root.path(), &entries, &TransferProgress::default(), stream).unwrap();
            assert_eq!(found, packed, "{size}");
        }
    }
}
