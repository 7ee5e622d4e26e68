//! Copies of a state directory in one file, a tar archive.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use serde::Serialize;

use super::check::failed;
use super::repair::{RepairReport, add_missing};
use crate::store::StoreError;
use crate::store::sqlite::Records;
use crate::store::state_dir::{OUTPUT, OWNERS, RECORDS, check, make_directory};

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ArchiveReport {
    /// Number of files.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
}

/// Writes a copy of a state directory as a tar archive: records, output, tokens, approvals, queues and the other files there.
/// Servers may go on meanwhile. The records are copied first, at one moment; output that is written after that may be in the
/// copy or not, and is never cut within a line. Blocking.
///
/// # Errors
/// If the directory can't be read, or the archive can't be written.
pub fn back_up(path: &Path, archive: impl Write) -> Result<ArchiveReport, StoreError> {
    check(path).map_err(failed(path))?;
    let scratch = tempfile::tempdir_in(path).map_err(failed(path))?;
    let records = scratch.path().join(RECORDS);
    Records::open_damaged(&path.join(RECORDS))?.copy_to(&records)?;
    let mut writer = Writer {
        archive: tar::Builder::new(archive),
        report: ArchiveReport::default(),
    };
    writer.archive.sparse(false);
    let write = || -> io::Result<ArchiveReport> {
        writer.add(&records, Path::new(RECORDS))?;
        writer.add_files_of(path, Path::new(""))?;
        writer.add_tree(&path.join(OUTPUT), Path::new(OUTPUT))?;
        writer.archive.into_inner()?.flush()?;
        Ok(writer.report)
    };
    write().map_err(failed(path))
}

struct Writer<W: Write> {
    archive: tar::Builder<W>,
    report: ArchiveReport,
}

impl<W: Write> Writer<W> {
    fn add_tree(&mut self, from: &Path, below: &Path) -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                self.add_tree(&entry.path(), &below.join(entry.file_name()))?;
            }
        }
        self.add_files_of(from, below)
    }

    /// Adds the files directly in a directory, except the database, which was copied, and files that are being replaced.
    fn add_files_of(&mut self, from: &Path, below: &Path) -> io::Result<()> {
        for entry in fs::read_dir(from)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let is_left_out = name.starts_with(RECORDS) || name.starts_with('.');
            if entry.file_type()?.is_file() && !is_left_out {
                self.add(&entry.path(), &below.join(entry.file_name()))?;
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
        // Output may grow meanwhile: of what is there now, all is copied.
        let size = file.metadata()?.len();
        let mut header = tar::Header::new_gnu();
        header.set_size(size);
        header.set_mode(PRIVATE);
        header.set_entry_type(tar::EntryType::Regular);
        let content = file.take(size).chain(io::repeat(0)).take(size);
        self.archive.append_data(&mut header, name, content)?;
        self.report.files += 1;
        self.report.bytes += size;
        Ok(())
    }
}

/// Permission bits of restored files.
const PRIVATE: u32 = 0o600;

/// Makes a state directory from a copy. The directory must not exist, or be empty. Jobs whose output began after their records
/// were copied get records as by [`repair_state`](super::repair_state). Blocking.
///
/// # Errors
/// [`StoreError::NotEmpty`]; others if the archive is damaged or not a copy, or the directory can't be written. What was written
/// of the directory is removed then.
pub fn restore(path: &Path, archive: impl Read) -> Result<ArchiveReport, StoreError> {
    let is_empty = match fs::read_dir(path) {
        Ok(mut entries) => entries.next().is_none(),
        Err(error) if error.kind() == ErrorKind::NotFound => true,
        Err(error) => return Err(failed(path)(error)),
    };
    if !is_empty {
        return Err(StoreError::NotEmpty(path.display().to_string()));
    }
    make_directory(path).and_then(|()| check(path)).map_err(failed(path))?;
    let restored = unpack(path, archive).and_then(|report| {
        add_missing(path, &mut RepairReport::default())?;
        Ok(report)
    });
    if restored.is_err() {
        for entry in fs::read_dir(path).map_err(failed(path))?.flatten() {
            let path = entry.path();
            // What is left makes the next try say that the directory is not empty.
            if path.is_dir() {
                fs::remove_dir_all(path).ok()
            } else {
                fs::remove_file(path).ok()
            };
        }
    }
    restored
}

fn unpack(path: &Path, archive: impl Read) -> Result<ArchiveReport, StoreError> {
    let mut report = ArchiveReport::default();
    let mut archive = tar::Archive::new(archive);
    let mut has_records = false;
    let mut write = || -> io::Result<()> {
        for entry in archive.entries()? {
            let mut entry = entry?;
            let below = safe_path(&entry)?;
            has_records |= below == Path::new(RECORDS);
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
    write().map_err(failed(path))?;
    if !has_records {
        return Err(StoreError::NoCopy);
    }
    Ok(report)
}

/// The path of an entry, which must be a file below the directory. Nobody's archive writes elsewhere.
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
