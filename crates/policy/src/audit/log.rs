//! The file of the log.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::checkpoint::{LINES, sign, sign_pruning};
use super::error::AuditError;
use super::event::Event;
use super::files::{rotated_files, rotated_name};
use super::key::AuditKey;
use super::line::{LineHash, LogHead, StoredLine};
use super::settings::AuditFiles;

/// Appends to a log. Its methods block. Other processes may append to the same log: the file is locked
/// for each append, and the newest line is read if it is not the own one.
pub struct AuditLog {
    files: AuditFiles,
    key: AuditKey,
    /// Bytes after which the log is continued in a new file.
    longest: u64,
    file: Option<File>,
    /// The newest line, as far as it is known.
    head: LogHead,
    /// Length of the file up to the end of that line.
    length: u64,
    /// Lines since the last checkpoint.
    unsigned: u64,
    /// Checkpoints that this value has written.
    signed: u64,
}

/// The oldest files of a log, which are deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunedFiles {
    /// The files.
    pub files: Vec<PathBuf>,
    /// The last line in them.
    pub last: LogHead,
}

/// The oldest full files of a log whose last line was written before a time. `None` if there are none.
fn files_before(log: &Path, before: SystemTime) -> io::Result<Option<PrunedFiles>> {
    let mut old = Vec::new();
    let mut newest = None;
    for (_, file) in rotated_files(log)? {
        let last = newest_line(&File::open(&file)?)?.ok_or_else(|| {
            let message = format!("{} has no line", file.display());
            io::Error::new(io::ErrorKind::InvalidData, message)
        })?;
        // Not the time of the file, which anyone may change who may write to it.
        if last.time.is_none_or(|time| time >= before) {
            break;
        }
        newest = Some(last.head);
        old.push(file);
    }
    Ok(newest.map(|last| PrunedFiles { files: old, last }))
}

/// Longest line. A longer one at the end of a file was not written by this program.
const LONGEST_LINE: u64 = 16 << 20;
/// Every line begins so.
const BEGINNING: &[u8] = b"{\"seq\":";
/// Bytes that are read at once from the end of a file.
const BLOCK: u64 = 64 << 10;

impl AuditLog {
    /// Opens the key, or creates it. The log is opened by the first append.
    ///
    /// # Errors
    /// If the key can't be read or created.
    pub fn new(files: AuditFiles, longest: u64) -> Result<Self, AuditError> {
        let key = AuditKey::open(&files.key).map_err(|source| AuditError {
            file: files.key.clone(),
            source,
        })?;
        Ok(Self {
            files,
            key,
            longest,
            file: None,
            head: LogHead::START,
            length: 0,
            unsigned: 0,
            signed: 0,
        })
    }

    /// The key that signs checkpoints.
    pub fn key(&self) -> &AuditKey {
        &self.key
    }

    /// The newest line.
    pub fn head(&self) -> LogHead {
        self.head
    }

    /// Number of checkpoints that this value has written.
    pub fn signed(&self) -> u64 {
        self.signed
    }

    /// Number of lines since the last checkpoint.
    pub fn unsigned(&self) -> u64 {
        self.unsigned
    }

    /// Appends events, and a checkpoint if one is due. Returns the sequence number of the first event.
    /// With `sync`, the events are on the disk before it returns.
    ///
    /// # Errors
    /// If not all of them could be written. Then none is in the log, unless the disk refuses that, too.
    pub fn append(&mut self, events: &[Event], sync: bool) -> Result<u64, AuditError> {
        self.try_append(events, sync).map_err(|source| AuditError {
            file: self.files.log.clone(),
            source,
        })
    }

    /// Appends a checkpoint. Returns the head, which has the hash of the checkpoint.
    ///
    /// # Errors
    /// As [`append`](Self::append).
    pub fn sign(&mut self) -> Result<LogHead, AuditError> {
        // The checkpoint that is due after many lines is written by an append without events, too.
        self.unsigned = LINES;
        self.append(&[], true)?;
        Ok(self.head)
    }

    /// Deletes the oldest full files, up to the first with a last line after `before`. First it records that in the log, in a
    /// line with a signature of its own. So a check knows a pruned log from one whose beginning was removed. The file that is being written
    /// stays, however old it is.
    ///
    /// # Errors
    /// If the statement can't be written (nothing is deleted then), or a file can't be deleted.
    pub fn prune(&mut self, before: SystemTime) -> Result<Option<PrunedFiles>, AuditError> {
        let failed = |source| AuditError {
            file: self.files.log.clone(),
            source,
        };
        let Some(pruned) = files_before(&self.files.log, before).map_err(failed)? else {
            return Ok(None);
        };
        let statement = Event::Pruned {
            through: pruned.last.seq,
            hash: pruned.last.hash.to_string(),
            files: pruned.files.len() as u64,
            signature: sign_pruning(&self.key, pruned.last),
        };
        self.append(&[statement], true)?;
        self.sign()?;
        for file in &pruned.files {
            match fs::remove_file(file) {
                // Another process prunes, too.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(source) => {
                    return Err(AuditError {
                        file: file.clone(),
                        source,
                    });
                }
                Ok(()) => {}
            }
        }
        Ok(Some(pruned))
    }

    fn try_append(&mut self, events: &[Event], sync: bool) -> io::Result<u64> {
        let mut file = self.locked()?;
        let written = self.write(&mut file, events, sync);
        if written.is_err() {
            // Of a full disk, for example: the next append must not follow half a line.
            file.set_len(self.length).ok();
        }
        // Closing the file would unlock it, too.
        if file.unlock().is_ok() {
            self.file = Some(file);
        }
        written
    }

    fn write(&mut self, file: &mut File, events: &[Event], sync: bool) -> io::Result<u64> {
        let mut head = self.head;
        let mut text = String::new();
        let mut append = |head: &mut LogHead, event: &Event| {
            let (line, next) = head.append(event, SystemTime::now());
            text.push_str(&line);
            text.push('\n');
            *head = next;
        };
        let torn = file.metadata()?.len().saturating_sub(self.length);
        if torn > 0 {
            file.set_len(self.length)?;
            append(&mut head, &Event::Repaired { bytes: torn });
        }
        let first = head.seq + 1;
        for event in events {
            append(&mut head, event);
        }
        let unsigned = self.unsigned + events.len() as u64;
        let is_signed = unsigned >= LINES;
        if is_signed {
            let signature = sign(&self.key, head);
            append(&mut head, &Event::Checkpoint { signature });
        }

        file.seek(SeekFrom::Start(self.length))?;
        file.write_all(text.as_bytes())?;
        if sync {
            file.sync_data()?;
        }
        self.head = head;
        self.length += text.len() as u64;
        self.unsigned = if is_signed { 0 } else { unsigned };
        self.signed += u64::from(is_signed);
        Ok(first)
    }

    /// The file, locked, with its newest line known.
    fn locked(&mut self) -> io::Result<File> {
        loop {
            let file = match self.file.take() {
                Some(file) => file,
                None => self.open()?,
            };
            file.lock()?;
            // Another process, or a program that rotates logs, may have renamed it.
            if fs::metadata(&self.files.log).is_ok_and(|now| is_same(&now, &file)) {
                self.catch_up(&file)?;
                if self.length < self.longest {
                    return Ok(file);
                }
                self.rotate(&file)?;
            }
        }
    }

    fn open(&mut self) -> io::Result<File> {
        if let Some(directory) = self.files.log.parent() {
            fs::create_dir_all(directory)?;
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(&self.files.log)?;
        if !file.metadata()?.is_file() {
            let message = "it is not a regular file";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        // A new file must be there after a power failure.
        self.sync_directory()?;
        self.length = 0;
        Ok(file)
    }

    /// Reads what other processes have appended.
    fn catch_up(&mut self, file: &File) -> io::Result<()> {
        let length = file.metadata()?.len();
        if length == self.length && length > 0 {
            return Ok(());
        }
        let newest = newest_line(file)?;
        self.length = newest.as_ref().map_or(0, |line| line.end);
        let newest = match newest {
            Some(newest) => Some(newest),
            // New, perhaps with half a line. The log continues where the file before it has ended.
            None => match rotated_files(&self.files.log)?.pop_last() {
                Some((_, before)) => newest_line(&File::open(before)?)?,
                None => None,
            },
        };
        // Never back: an older line means that someone has cut the file, or replaced it by an older copy.
        // The next line keeps the hash of what was there, so that a check shows it.
        if let Some(newest) = newest
            && newest.head.seq > self.head.seq
        {
            self.unsigned += newest.head.seq - self.head.seq;
            self.head = newest.head;
        }
        Ok(())
    }

    /// Renames the full file. Its new name has the number of its last line.
    fn rotate(&self, full: &File) -> io::Result<()> {
        full.sync_data()?;
        let name = rotated_name(&self.files.log, self.head.seq);
        if name.exists() {
            let message = format!("{} is in the way", name.display());
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
        }
        fs::rename(&self.files.log, name)?;
        self.sync_directory()
    }

    fn sync_directory(&self) -> io::Result<()> {
        let directory = self.files.log.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(directory.unwrap_or_else(|| Path::new(".")))?.sync_all()
    }
}

fn is_same(metadata: &fs::Metadata, file: &File) -> bool {
    let opened = file.metadata();
    opened.is_ok_and(|opened| (opened.dev(), opened.ino()) == (metadata.dev(), metadata.ino()))
}

/// The last complete line of a file.
struct NewestLine {
    head: LogHead,
    /// Position behind its line feed.
    end: u64,
    /// When it was written. `None` if it does not tell.
    time: Option<SystemTime>,
}

/// Reads the last complete line of a file. `None` if it has none.
fn newest_line(file: &File) -> io::Result<Option<NewestLine>> {
    let mut file = file;
    let length = file.metadata()?.len();
    let mut tail: Vec<u8> = Vec::new();
    let mut start = length;
    // Until there are two line feeds: one before the line, and one behind it.
    while start > 0 && tail.iter().filter(|byte| **byte == b'\n').count() < 2 {
        if length - start > LONGEST_LINE {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "its last line is too long",
            ));
        }
        let before = start.saturating_sub(BLOCK);
        let mut block = vec![0; usize::try_from(start - before).expect("at most a block")];
        file.seek(SeekFrom::Start(before))?;
        file.read_exact(&mut block)?;
        block.extend_from_slice(&tail);
        (tail, start) = (block, before);
    }
    let Some(end) = tail.iter().rposition(|byte| *byte == b'\n') else {
        let beginning = &tail[..tail.len().min(BEGINNING.len())];
        return if BEGINNING.starts_with(beginning) {
            Ok(None)
        } else {
            let message = "it is another file, and not an audit log";
            Err(io::Error::new(io::ErrorKind::InvalidData, message))
        };
    };
    let line = tail[..end].rsplit(|byte| *byte == b'\n').next().unwrap_or_default();
    let stored: StoredLine = serde_json::from_slice(line).map_err(|error| {
        let message = format!("its last line is no line of an audit log: {error}");
        io::Error::new(io::ErrorKind::InvalidData, message)
    })?;
    Ok(Some(NewestLine {
        head: LogHead {
            seq: stored.seq,
            hash: LineHash::of(line),
        },
        end: start + end as u64 + 1,
        time: humantime::parse_rfc3339(&stored.time).ok(),
    }))
}

#[cfg(test)]
mod tests;
