//! Shared texts of one machine: a file that several processes share, and a text in memory.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{FlockOperation, flock};
use sha2::{Digest, Sha256};

use super::{SharedText, StoreError, Versioned};
use sshjobs_base::bounded_file::read_up_to;
use sshjobs_base::lock::lock;

/// A text in a file of the state directory. It is replaced as a whole, under a lock beside it.
pub(super) struct TextInFile {
    file: PathBuf,
    /// The text as it was last read.
    copy: Mutex<Versioned>,
}

/// Longest text in bytes.
const LONGEST: u64 = 16 << 20;

impl TextInFile {
    pub(super) fn open(file: PathBuf) -> Result<Self, StoreError> {
        let text = Self {
            file,
            copy: Mutex::default(),
        };
        text.refresh()?;
        Ok(text)
    }

    fn load(&self) -> io::Result<Versioned> {
        // Opening a FIFO would wait for a writer.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let file = match OpenOptions::new().read(true).custom_flags(flags).open(&self.file) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Versioned::default());
            }
            Err(error) => return Err(error),
        };
        let bytes = read_up_to(LONGEST, file)?;
        let text = String::from_utf8(bytes).map_err(io::Error::other)?;
        Ok(Versioned {
            version: version_of(&text),
            text,
        })
    }

    fn try_replace(&self, text: &str, version: u64) -> io::Result<bool> {
        // A file of its own, never removed: a lock on the text would stay on the replaced file.
        let lock_file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(self.file.with_extension("lock"))?;
        flock(&lock_file, FlockOperation::LockExclusive)?;
        // After `flock`, so that another process's change is not lost.
        let now = self.load()?;
        if text.len() as u64 > LONGEST {
            return Err(io::Error::other("the text is too long to be read again"));
        }
        let is_unchanged = now.version == version;
        if is_unchanged {
            self.write(text)?;
            *lock(&self.copy) = Versioned {
                text: text.to_owned(),
                version: version_of(text),
            };
        } else {
            *lock(&self.copy) = now;
        }
        Ok(is_unchanged)
    }

    fn write(&self, text: &str) -> io::Result<()> {
        let directory = self.file.parent().unwrap_or(Path::new("."));
        // In the same directory, so that it can be renamed. tempfile creates it with mode 0600.
        let mut file = tempfile::Builder::new().prefix("text").tempfile_in(directory)?;
        file.write_all(text.as_bytes())?;
        // Before the rename, so that a power failure can't leave an empty file.
        file.as_file().sync_all()?;
        file.persist(&self.file)?;
        File::open(directory)?.sync_all()
    }

    fn failed(&self, source: io::Error) -> StoreError {
        StoreError::Io {
            path: self.file.display().to_string(),
            source: Arc::new(source),
        }
    }
}

impl SharedText for TextInFile {
    fn read(&self) -> Versioned {
        lock(&self.copy).clone()
    }

    fn refresh(&self) -> Result<(), StoreError> {
        let loaded = self.load().map_err(|error| self.failed(error))?;
        *lock(&self.copy) = loaded;
        Ok(())
    }

    fn replace(&self, text: &str, version: u64) -> Result<bool, StoreError> {
        self.try_replace(text, version).map_err(|error| self.failed(error))
    }
}

/// A text that the handles of one process share.
#[derive(Clone, Default)]
pub struct MemoryText(Arc<Mutex<Versioned>>);

impl SharedText for MemoryText {
    fn read(&self) -> Versioned {
        lock(&self.0).clone()
    }

    fn refresh(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn replace(&self, text: &str, version: u64) -> Result<bool, StoreError> {
        let mut current = lock(&self.0);
        if current.version != version {
            return Ok(false);
        }
        *current = Versioned {
            text: text.to_owned(),
            version: version + 1,
        };
        Ok(true)
    }
}

/// Version of a text: the first 8 bytes of its SHA-256, so the same in every process; never 0.
fn version_of(text: &str) -> u64 {
    let hash = Sha256::digest(text);
    let mut first = [0; 8];
    hash.as_slice().read_exact(&mut first).expect("a SHA-256 has 32 bytes");
    u64::from_le_bytes(first).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_processes_see_each_others_changes_and_lose_none() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("text.json");
        let one = TextInFile::open(file.clone()).unwrap();
        let other = TextInFile::open(file).unwrap();

        assert_eq!(one.read(), Versioned::default());
        assert!(one.replace("first", 0).unwrap());
        assert!(!other.replace("lost", 0).unwrap(), "the text has changed");
        assert_eq!(other.read().text, "first");
        assert!(other.replace("second", other.read().version).unwrap());
        one.refresh().unwrap();
        assert_eq!(one.read().text, "second");
    }

    #[test]
    fn a_text_can_be_read_by_its_owner_only() {
        use std::os::unix::fs::PermissionsExt;
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("text.json");

        TextInFile::open(file.clone()).unwrap().replace("secret", 0).unwrap();

        let mode = std::fs::metadata(file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
