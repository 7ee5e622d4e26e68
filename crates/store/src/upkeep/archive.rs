//! Copies of a state directory in one file, a tar archive.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::check::failed;
use super::repair::{RepairReport, add_missing};
use crate::StoreError;
use crate::sqlite::RecordTable;
use crate::state_dir::{OUTPUT, OWNERS, RECORDS, check, make_directory, make_private};

/// What was copied. The last file of an archive has it, too, so that an archive that was cut is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArchiveReport {
    /// Number of files.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// Name of the last file of an archive.
const REPORT: &str = "sshjobs-backup.json";
/// Prefix of the directory in which records are copied before they are in the archive.
const SCRATCH: &str = ".backup-";
/// Age at which such a directory was left by a process that was killed.
const LEFT: Duration = Duration::from_secs(24 * 60 * 60);
/// Name of the directory in which an archive is unpacked.
const UNPACKED: &str = ".restoring";
/// Permission bits of restored files.
const PRIVATE: u32 = 0o600;

/// Writes a copy of a state directory as a tar archive: records, output, tokens, approvals, queues and the other files there.
/// Servers may go on meanwhile. The records are copied first, at one moment; output that is written after that may be in the
/// copy or not, and may end within a line. Blocking.
///
/// # Errors
/// If the directory can't be read, or the archive can't be written.
pub fn back_up(path: &Path, archive: impl Write) -> Result<ArchiveReport, StoreError> {
    check(path).map_err(failed(path))?;
    remove_left(path).map_err(failed(path))?;
    let scratch = tempfile::Builder::new()
        .prefix(SCRATCH)
        .permissions(Permissions::from_mode(0o700))
        .tempdir_in(path)
        .map_err(failed(path))?;
    let records = scratch.path().join(RECORDS);
    // SQLite would create it readable for others under the usual umask.
    make_private(&records).map_err(failed(path))?;
    RecordTable::open_unchecked(&path.join(RECORDS))?.copy_to(&records)?;
    let mut writer = ArchiveWriter {
        archive: tar::Builder::new(archive),
        report: ArchiveReport::default(),
    };
    let write = || -> io::Result<ArchiveReport> {
        writer.add(&records, Path::new(RECORDS))?;
        writer.add_files_of(path, Path::new(""))?;
        writer.add_tree(&path.join(OUTPUT), Path::new(OUTPUT))?;
        let report = writer.report;
        let text = serde_json::to_vec(&report)?;
        writer.append(Path::new(REPORT), text.len() as u64, text.as_slice())?;
        writer.archive.into_inner()?.flush()?;
        Ok(report)
    };
    write().map_err(copy_failed)
}

fn copy_failed(error: io::Error) -> StoreError {
    StoreError::Copy(error.to_string())
}

/// Removes what processes have left that were killed during a copy.
fn remove_left(path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let modified = entry.metadata().and_then(|metadata| metadata.modified());
        let is_old = modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > LEFT));
        if entry.file_name().to_string_lossy().starts_with(SCRATCH) && is_old {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

struct ArchiveWriter<W: Write> {
    archive: tar::Builder<W>,
    report: ArchiveReport,
}

impl<W: Write> ArchiveWriter<W> {
    fn add_tree(&mut self, from: &Path, below: &Path) -> io::Result<()> {
        for entry in entries_of(from)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                self.add_tree(&entry.path(), &below.join(entry.file_name()))?;
            }
        }
        self.add_files_of(from, below)
    }

    /// Adds the files directly in a directory, except the database, which was copied, and files that are being replaced.
    fn add_files_of(&mut self, from: &Path, below: &Path) -> io::Result<()> {
        for entry in entries_of(from)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_left_out = name.starts_with(RECORDS) || name.starts_with('.');
            if entry.file_type()?.is_file() && !is_left_out {
                let path = entry.path();
                self.add(&path, &below.join(entry.file_name())).map_err(|error| {
                    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
                })?;
            }
        }
        Ok(())
    }

    fn add(&mut self, file: &Path, name: &Path) -> io::Result<()> {
        let file = match File::open(file) {
            // A job was forgotten meanwhile.
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            opened => opened?,
        };
        // Output may grow meanwhile: of what is there now, all is copied. A file that shrinks is filled with zeros, because its
        // size comes before it in the archive.
        let size = file.metadata()?.len();
        self.append(name, size, file.take(size).chain(io::repeat(0)).take(size))?;
        self.report.files += 1;
        self.report.bytes += size;
        Ok(())
    }

    fn append(&mut self, name: &Path, size: u64, content: impl Read) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(PRIVATE);
        header.set_entry_type(tar::EntryType::Regular);
        self.archive.append_data(&mut header, name, content)
    }
}

/// The entries of a directory. None if it is not there, as that of output before the first job.
fn entries_of(directory: &Path) -> io::Result<impl Iterator<Item = io::Result<fs::DirEntry>>> {
    match fs::read_dir(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None.into_iter().flatten()),
        entries => Ok(Some(entries?).into_iter().flatten()),
    }
}

/// Makes a state directory from a copy. The directory must not exist, or be empty. Jobs whose output began after their records
/// were copied get records as by [`repair_state`](super::repair_state). Blocking.
///
/// # Errors
/// [`StoreError::NotEmpty`]; others if the archive is cut or not a copy, or the directory can't be written. The directory is
/// empty then.
pub fn restore(path: &Path, archive: impl Read) -> Result<ArchiveReport, StoreError> {
    if !is_empty(path).map_err(failed(path))? {
        return Err(StoreError::NotEmpty(path.display().to_string()));
    }
    make_directory(path).and_then(|()| check(path)).map_err(failed(path))?;
    // Beside its place until it is complete, so that no server takes a part for the whole.
    let unpacked = path.join(UNPACKED);
    remove_tree(&unpacked).map_err(failed(path))?;
    let restored = unpack(&unpacked, archive);
    if restored.is_err() {
        // What is left here does not keep the next try from its work.
        remove_tree(&unpacked).ok();
    }
    let report = restored?;
    add_missing(&unpacked, &mut RepairReport::default())?;
    put_in_place(&unpacked, path).map_err(failed(path))?;
    Ok(report)
}

/// Whether there is nothing in a directory but a part of an earlier try.
fn is_empty(path: &Path) -> io::Result<bool> {
    for entry in entries_of(path)? {
        if entry?.file_name() != UNPACKED {
            return Ok(false);
        }
    }
    Ok(true)
}

fn remove_tree(path: &Path) -> io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Moves everything up, the records last: without them, a server would warn.
fn put_in_place(unpacked: &Path, path: &Path) -> io::Result<()> {
    for entry in fs::read_dir(unpacked)? {
        let entry = entry?;
        if entry.file_name() != RECORDS {
            fs::rename(entry.path(), path.join(entry.file_name()))?;
        }
    }
    fs::rename(unpacked.join(RECORDS), path.join(RECORDS))?;
    fs::remove_dir(unpacked)
}

fn unpack(path: &Path, archive: impl Read) -> Result<ArchiveReport, StoreError> {
    let mut report = ArchiveReport::default();
    let mut said: Option<ArchiveReport> = None;
    let mut archive = tar::Archive::new(archive);
    let mut write = || -> io::Result<()> {
        for entry in archive.entries()? {
            let mut entry = entry?;
            let below = safe_path(&entry)?;
            if below == Path::new(REPORT) {
                said = Some(serde_json::from_reader(entry)?);
                continue;
            }
            let target = path.join(&below);
            if let Some(parent) = target.parent() {
                make_directory(parent)?;
            }
            let mut options = OpenOptions::new();
            options.write(true).create_new(true).mode(PRIVATE);
            report.bytes += io::copy(&mut entry, &mut options.open(&target)?)?;
            report.files += 1;
        }
        Ok(())
    };
    write().map_err(copy_failed)?;
    if said != Some(report) || !path.join(RECORDS).exists() {
        return Err(StoreError::NoCopy);
    }
    Ok(report)
}

/// The path of an entry, which must be a file: an archive from elsewhere must not write outside of the directory.
fn safe_path(entry: &tar::Entry<'_, impl Read>) -> io::Result<PathBuf> {
    let path = entry.path()?.into_owned();
    let is_below = path.components().all(|part| matches!(part, Component::Normal(_)));
    let is_of_processes = path.starts_with(OWNERS);
    if entry.header().entry_type().is_file() && is_below && !is_of_processes {
        Ok(path)
    } else {
        let message = format!("{} is no file of a state directory", path.display());
        Err(io::Error::new(ErrorKind::InvalidData, message))
    }
}
