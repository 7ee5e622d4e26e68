//! The files of a log, line by line.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::error::AuditError;

/// Longest line that is read, in bytes.
const LONGEST_LINE: u64 = 16 << 20;

/// A line as it is in its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawLine {
    /// The file.
    pub file: PathBuf,
    /// Number of the line in the file, from 1.
    pub number: u64,
    /// The line, without its line feed.
    pub bytes: Vec<u8>,
    /// Whether it ended with a line feed. The last one may be cut off.
    pub is_complete: bool,
}

/// A file, up to its length when it was opened: others append to it meanwhile.
struct OpenLog {
    file: File,
    length: u64,
    /// Device and inode.
    identity: (u64, u64),
}

/// Opens a file between two appends. `None` if it does not exist.
fn open(path: &Path) -> io::Result<Option<OpenLog>> {
    // Looked at before: to open a pipe would wait for its writer.
    match fs::metadata(path) {
        Ok(metadata) if metadata.is_file() => {}
        Ok(_) => {
            let message = "it is not a regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    }
    let file = File::open(path)?;
    file.lock_shared()?;
    let metadata = file.metadata()?;
    file.unlock()?;
    Ok(Some(OpenLog {
        length: metadata.len(),
        identity: (metadata.dev(), metadata.ino()),
        file,
    }))
}

/// The name of a full file. It has the number of its last line.
pub(super) fn rotated_name(log: &Path, last: u64) -> PathBuf {
    let mut name = log.as_os_str().to_owned();
    name.push(format!(".{last:012}"));
    name.into()
}

/// The full files of a log, in order, by the number of their last line.
pub(super) fn rotated_files(log: &Path) -> io::Result<BTreeMap<u64, PathBuf>> {
    let directory = log.parent().filter(|parent| !parent.as_os_str().is_empty());
    let mut rotated = BTreeMap::new();
    for entry in fs::read_dir(directory.unwrap_or_else(|| Path::new(".")))? {
        let path = entry?.path();
        let last = path.extension().and_then(|last| last.to_str()?.parse().ok());
        if let Some(last) = last
            && rotated_name(log, last).file_name() == path.file_name()
            && path.is_file()
        {
            rotated.insert(last, path);
        }
    }
    Ok(rotated)
}

/// Gives each line of a log to `read`, the oldest first, until it returns false.
///
/// # Errors
/// If a file can't be read.
pub fn for_each_line(log: &Path, mut read: impl FnMut(RawLine) -> bool) -> Result<(), AuditError> {
    let opened = open(log).map_err(error_at(log))?;
    let mut files = Vec::new();
    for (_, file) in rotated_files(log).map_err(error_at(log))? {
        files.push((open(&file).map_err(error_at(&file))?, file));
    }
    // Perhaps it was renamed since it was opened here. It is read once.
    let is_renamed = opened.as_ref().is_some_and(|opened| {
        let mut rotated = files.iter().filter_map(|(rotated, _)| rotated.as_ref());
        rotated.any(|rotated| rotated.identity == opened.identity)
    });
    if opened.is_none() && files.is_empty() {
        return Err(error_at(log)(io::ErrorKind::NotFound.into()));
    }
    if !is_renamed {
        files.push((opened, log.to_owned()));
    }
    for (opened, file) in files {
        // Missing between a rotation and the next line.
        let Some(opened) = opened else { continue };
        let mut reader = BufReader::new(opened.file.take(opened.length));
        for number in 1.. {
            let mut bytes = Vec::new();
            let limited = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut bytes);
            if limited.map_err(error_at(&file))? == 0 {
                break;
            }
            let is_complete = bytes.pop_if(|last| *last == b'\n').is_some();
            let line = RawLine {
                file: file.clone(),
                number,
                bytes,
                is_complete,
            };
            if !read(line) {
                return Ok(());
            }
        }
    }
    Ok(())
}

fn error_at(file: &Path) -> impl FnOnce(io::Error) -> AuditError {
    let file = file.to_owned();
    move |source| AuditError { file, source }
}
