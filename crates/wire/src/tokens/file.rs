//! The file of tokens: replaced as a whole under a lock, and read again when it changes.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{FlockOperation, flock};
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
use rustix::fs::{FsWord, statfs};

use super::TokenEntry;
use super::error::TokensError;
use super::home::{Change, Contents, Home};
use sshjobs_base::lock::lock;

/// The file of tokens, `tokens.json` in the state directory. Only its owner may read it.
pub(super) struct TokensFile {
    file: PathBuf,
    read: Mutex<Option<ReadFile>>,
}

/// The file as it was last read.
struct ReadFile {
    stamp: Stamp,
    entries: Arc<[TokenEntry]>,
    /// Whether its path is on disks of this machine, so that a look at its metadata does not wait for a network.
    is_local: bool,
}

/// Inode, seconds and nanoseconds of ctime, and size. They identify a version of the file, because
/// each change creates a new file.
type Stamp = (u64, i64, i64, u64);

impl TokensFile {
    /// The file of a state directory, which need not exist.
    pub(super) fn of(state_dir: &Path) -> Self {
        Self {
            file: state_dir.join("tokens.json"),
            read: Mutex::default(),
        }
    }

    fn stamp(&self, metadata: &Metadata) -> Result<Stamp, TokensError> {
        if metadata.mode() & 0o022 != 0 {
            return Err(TokensError::Exposed(self.file.clone()));
        }
        Ok((
            metadata.ino(),
            metadata.ctime(),
            metadata.ctime_nsec(),
            metadata.size(),
        ))
    }

    fn replace(&self, directory: &Path, tokens: Vec<TokenEntry>) -> io::Result<()> {
        // In the same directory, so that it can be renamed. tempfile creates it with mode 0600.
        let mut file = tempfile::Builder::new().prefix("tokens").tempfile_in(directory)?;
        serde_json::to_writer_pretty(&mut file, &Contents { tokens })?;
        file.write_all(b"\n")?;
        // Before the rename, so that a power failure can't leave an empty file of tokens.
        file.as_file().sync_all()?;
        file.persist(&self.file)?;
        File::open(directory)?.sync_all()
    }

    fn failed(&self, source: io::Error) -> TokensError {
        TokensError::Io {
            file: self.file.clone(),
            source,
        }
    }
}

impl Home for TokensFile {
    fn list(&self) -> Result<Arc<[TokenEntry]>, TokensError> {
        let stamp = match std::fs::metadata(&self.file) {
            Ok(metadata) => self.stamp(&metadata)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Arc::default()),
            Err(error) => return Err(self.failed(error)),
        };
        if let Some(read) = lock(&self.read).as_ref().filter(|read| read.stamp == stamp) {
            return Ok(Arc::clone(&read.entries));
        }
        // Opening a FIFO would wait for a writer.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&self.file);
        let file = opened.map_err(|error| self.failed(error))?;
        let metadata = file.metadata().map_err(|error| self.failed(error))?;
        if !metadata.is_file() {
            return Err(self.failed(io::Error::other("it is not a regular file")));
        }
        // Of the file that is read: it may have been replaced since the first look.
        let stamp = self.stamp(&metadata)?;
        let is_local = is_on_local_disks(&self.file);
        let contents: Contents =
            serde_json::from_reader(io::BufReader::new(file)).map_err(|source| {
                TokensError::Damaged {
                    file: self.file.clone(),
                    source,
                }
            })?;
        let entries: Arc<[TokenEntry]> = contents.tokens.into();
        *lock(&self.read) = Some(ReadFile {
            stamp,
            entries: Arc::clone(&entries),
            is_local,
        });
        Ok(entries)
    }

    fn list_at_once(&self) -> Option<Arc<[TokenEntry]>> {
        let read = lock(&self.read);
        let read = read.as_ref().filter(|read| read.is_local)?;
        let stamp = self.stamp(&std::fs::metadata(&self.file).ok()?).ok()?;
        (stamp == read.stamp).then(|| Arc::clone(&read.entries))
    }

    /// Replaces the file, one process at a time. Readers see the old one or the new one.
    fn change(&self, change: Change<'_>) -> Result<(), TokensError> {
        let directory = self.file.parent().unwrap_or(Path::new("."));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| self.failed(error))?;
        // A file of its own, never removed: a lock on tokens.json would stay on the replaced file.
        let lock_file = self.file.with_extension("lock");
        let lock_file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(lock_file)
            .map_err(|error| self.failed(error))?;
        flock(&lock_file, FlockOperation::LockExclusive)
            .map_err(|error| self.failed(error.into()))?;
        // After `flock`, so that another process's change is not lost.
        let mut tokens = self.list()?.to_vec();
        change(&mut tokens)?;
        self.replace(directory, tokens).map_err(|error| self.failed(error))
    }
}

/// Whether a file and all directories on the way to it are known to be on disks of this machine. A network disk
/// may take long to answer.
#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
fn is_on_local_disks(file: &Path) -> bool {
    /// Types of local file systems, from linux/magic.h: ext2 to ext4, XFS, Btrfs, F2FS, tmpfs.
    const LOCAL: [FsWord; 5] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010, 0x0102_1994];
    let Ok(target) = file.canonicalize() else { return false };
    // Both, because the path may lead through symbolic links.
    let mut all = file.ancestors().chain(target.ancestors());
    all.all(|path| statfs(path).is_ok_and(|found| LOCAL.contains(&found.f_type)))
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
fn is_on_local_disks(_file: &Path) -> bool {
    false
}
