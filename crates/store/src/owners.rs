//! Which processes are alive, by locked files.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

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
/// Prefix of a file whose process is just entering.
const ENTERING: &str = ".";
/// Age at which such a file is left from a process that was killed.
const ENTERED_BY: Duration = Duration::from_secs(60);

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
        // Under another name until it is locked, so that no process takes it for an ended one's.
        let path = directory.join(format!("{ENTERING}{name}"));
        let mut own = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        // The kernel releases it however the process ends, even by SIGKILL.
        flock(&own, FlockOperation::NonBlockingLockExclusive)?;
        own.write_all(about.as_bytes())?;
        fs::rename(&path, directory.join(&name))?;
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

    /// Descriptions of the processes that use a state directory now.
    pub(super) fn running(directory: &Path) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(directory) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut running = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            let name = name.to_string_lossy();
            let name = name.strip_suffix(SOCKET).unwrap_or(&name);
            running.extend(about(directory, name)?);
        }
        // A process may have a file and a socket.
        running.sort_unstable();
        running.dedup();
        Ok(running)
    }

    /// Description of a process. `None` if it has ended.
    pub(super) fn about(&self, name: &str) -> io::Result<Option<String>> {
        about(&self.directory, name)
    }

    /// Deletes the files of processes that have ended.
    pub(super) fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            // A process that was killed leaves its socket, too.
            let process = name.strip_suffix(SOCKET).unwrap_or(name);
            let is_entering = name.starts_with(ENTERING) && !is_old(&entry);
            if process != self.name && !is_entering && self.about(process)?.is_none() {
                match fs::remove_file(entry.path()) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    // `Err` is `NotFound` here: another process has deleted it.
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(())
    }
}

/// Description of a process. `None` if it has ended.
fn about(directory: &Path, name: &str) -> io::Result<Option<String>> {
    // Names come from records and must not lead out of the directory.
    let is_name = name.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
    if name.is_empty() || !is_name {
        return Ok(None);
    }
    let path = directory.join(name);
    let mut file = match File::open(&path) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    // Shared, so that two processes that look at once don't take each other for the owner.
    match flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(None),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let mut about = String::new();
            file.read_to_string(&mut about)?;
            Ok(Some(about))
        }
        Err(error) => Err(error.into()),
    }
}

fn is_old(entry: &fs::DirEntry) -> bool {
    let modified = entry.metadata().and_then(|metadata| metadata.modified());
    modified.is_ok_and(|at| at.elapsed().is_ok_and(|age| age > ENTERED_BY))
}

impl Drop for Owners {
    fn drop(&mut self) {
        // If it can't be deleted, the next process finds it unlocked.
        fs::remove_file(self.socket(&self.name)).ok();
        fs::remove_file(self.directory.join(&self.name)).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_just_entering_is_not_taken_for_an_ended_one() {
        let directory = tempfile::tempdir().unwrap();
        let owners = Owners::enter(directory.path(), "test").unwrap();
        let entering = directory.path().join(".123-0000abcd");
        let ended = directory.path().join("124-0000abcd");
        fs::write(&entering, "process 123").unwrap();
        fs::write(&ended, "process 124").unwrap();

        owners.clear().unwrap();

        assert!(entering.exists());
        assert!(!ended.exists());
        assert!(owners.about(owners.own_name()).unwrap().is_some());
    }
}
