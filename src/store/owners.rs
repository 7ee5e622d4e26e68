use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rand::RngExt;
use rustix::fs::{FlockOperation, flock};

/// The processes that own jobs: each has a file that it keeps locked while it lives, however it ends.
pub(super) struct Owners {
    directory: PathBuf,
    name: String,
    /// Locked until it is closed.
    _own: File,
}

impl Owners {
    /// Takes this process in, under a new name. `process` is what people recognize it by.
    pub(super) fn enter(directory: &Path, process: &str) -> io::Result<Self> {
        let pid = std::process::id();
        let about =
            if process.is_empty() { format!("process {pid}") } else { format!("process {pid} ({process})") };
        let name = format!("{pid}-{:08x}", rand::rng().random::<u32>());
        let path = directory.join(&name);
        let mut own = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        flock(&own, FlockOperation::NonBlockingLockExclusive)?;
        own.write_all(about.as_bytes())?;
        Ok(Self { directory: directory.to_owned(), name, _own: own })
    }

    pub(super) fn own_name(&self) -> &str {
        &self.name
    }

    /// The process of this name in a few words; none when it has ended.
    pub(super) fn about(&self, name: &str) -> io::Result<Option<String>> {
        let is_name = name.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        if name.is_empty() || !is_name {
            return Ok(None);
        }
        let path = self.directory.join(name);
        let file = match File::open(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            file => file?,
        };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(None),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(Some(fs::read_to_string(&path)?)),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes the files of processes that have ended.
    pub(super) fn clear(&self) -> io::Result<()> {
        for entry in fs::read_dir(&self.directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if let Some(name) = name.to_str()
                && name != self.name
                && self.about(name)?.is_none()
            {
                match fs::remove_file(entry.path()) {
                    Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
                    // Or another process was faster.
                    Ok(()) | Err(_) => {}
                }
            }
        }
        Ok(())
    }
}

impl Drop for Owners {
    fn drop(&mut self) {
        // If it can't be removed, whoever comes next finds it unlocked.
        fs::remove_file(self.directory.join(&self.name)).ok();
    }
}
