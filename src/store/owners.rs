//! Which processes are alive, by locked files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rand::RngExt;
use rustix::fs::{FlockOperation, flock};

/// Processes that own jobs. Each has a file that it keeps locked until it ends, for whatever
/// reason.
pub(super) struct Owners {
    directory: PathBuf,
    name: String,
    /// Locked until it is closed.
    _own: File,
}

/// Suffix of sockets.
const SOCKET: &str = ".sock";

impl Owners {
    /// Registers this process under a new name. `process` is its description for people.
    pub(super) fn enter(directory: &Path, process: &str) -> io::Result<Self> {
        let pid = std::process::id();
        let about = if process.is_empty() {
            format!("process {pid}")
        } else {
            format!("process {pid} ({process})")
        };
        // The system reuses pids, so a pid alone does not identify a process.
        let name = format!("{pid}-{:08x}", rand::rng().random::<u32>());
        let path = directory.join(&name);
        let mut own = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        // The kernel releases it however the process ends, even by SIGKILL.
        flock(&own, FlockOperation::NonBlockingLockExclusive)?;
        own.write_all(about.as_bytes())?;
        Ok(Self {
            directory: directory.to_owned(),
            name,
            _own: own,
        })
    }

    pub(super) fn own_name(&self) -> &str {
        &self.name
    }

    /// The socket of a process, if it listens.
    pub(super) fn socket(&self, name: &str) -> PathBuf {
        self.directory.join(format!("{name}{SOCKET}"))
    }

    /// Description of a process. `None` if it has ended.
    pub(super) fn about(&self, name: &str) -> io::Result<Option<String>> {
        // Names come from records and must not lead out of the directory.
        let is_name = name.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        if name.is_empty() || !is_name {
            return Ok(None);
        }
        let path = self.directory.join(name);
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        // Shared, so that two processes that look at once don't take each other for the owner.
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(None),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(Some(fs::read_to_string(&path)?)),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes the files of processes that have ended.
    pub(super) fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            let process = name.strip_suffix(SOCKET).unwrap_or(name);
            if process != self.name && self.about(process)?.is_none() {
                match fs::remove_file(entry.path()) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    // On an error, another process was faster.
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(())
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        // If it can't be deleted, the next process finds it unlocked.
        fs::remove_file(self.socket(&self.name)).ok();
        fs::remove_file(self.directory.join(&self.name)).ok();
    }
}
