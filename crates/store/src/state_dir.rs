//! The state directory: database, output and owners, private to one user.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rand::RngExt;

use super::files::Files;
use super::local_text::TextInFile;
use super::media::Media;
use super::owners::Owners;
use super::sqlite::RecordTable;
use super::{
    Filter, LogLimits, Record, SegmentWriter, SharedText, Store, StoreError, StoreLimits,
    StoredEnd, StoredLog,
};
use sshjobs_base::lock::{LockGuard, lock};
use sshjobs_job::{CursorMove, CursorName, JobId, Moved};
use sshjobs_output::{LineNo, Timestamp};

/// A store in a directory of the user: `jobs.db`, `output/` and `owners/`.
pub struct StateDir {
    path: PathBuf,
    records: Mutex<RecordTable>,
    /// The same records, for reading while another process writes.
    readable: Mutex<RecordTable>,
    owners: Owners,
    media: Arc<dyn Media>,
    /// The files behind `media`.
    files: Files,
    secret: [u8; 32],
    identities: Identities,
}

/// Device and inode of the directory and of the records in it. They distinguish it from another
/// directory at the same path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identities {
    directory: (u64, u64),
    records: (u64, u64),
}

impl Identities {
    /// Identities at this path now. The records are not opened: closing them again would release
    /// SQLite's locks (POSIX).
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            directory: identity(path)?,
            records: identity(&path.join(RECORDS))?,
        })
    }
}

/// Device and inode.
fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let found = std::fs::metadata(path)?;
    Ok((found.dev(), found.ino()))
}

pub(super) fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// Name of the file of records.
pub(super) const RECORDS: &str = "jobs.db";
/// Name of the directory of output.
pub(super) const OUTPUT: &str = "output";
/// Name of the directory of processes.
pub(super) const OWNERS: &str = "owners";

impl StateDir {
    /// Opens a state directory. Creates a missing one with mode 0700. `process` is shown to other
    /// processes as the owner of its jobs. Blocking.
    ///
    /// # Errors
    /// If it can't be created or written, belongs to another user, or was written by a newer
    /// sshjobs.
    pub fn open(path: &Path, process: &str) -> Result<Self, StoreError> {
        let records = std::fs::metadata(path.join(RECORDS));
        let was_empty = records.map_or(true, |file| file.len() == 0);
        let opened = Self::open_unwarned(path, process)?;
        // Not a first start: the database was deleted, or a full disk has emptied it.
        if was_empty && opened.files.jobs().is_ok_and(|jobs| !jobs.is_empty()) {
            tracing::warn!(
                "jobs.db is new, and there is output of jobs that it does not know: end the servers of {}, and run \
                 `sshjobs store repair`",
                path.display()
            );
        }
        Ok(opened)
    }

    /// Like [`open`](Self::open), without a warning about a database that was lost.
    pub(super) fn open_unwarned(path: &Path, process: &str) -> Result<Self, StoreError> {
        let failed = |source: io::Error| StoreError::Io {
            path: path.display().to_string(),
            source: Arc::new(source),
        };
        make_directory(path).map_err(failed)?;
        // An existing directory keeps its mode, so this comes before anything is written to it.
        check(path).map_err(failed)?;
        make_directory(&path.join(OUTPUT)).map_err(failed)?;
        make_directory(&path.join(OWNERS)).map_err(failed)?;
        let owners = Owners::enter(&path.join(OWNERS), process).map_err(failed)?;
        // Before SQLite, which would create it readable for others under the usual umask.
        make_private(&path.join(RECORDS)).map_err(failed)?;
        let records = RecordTable::open(&path.join(RECORDS))?;
        let secret = records.shared_secret(rand::rng().random())?;
        // After `RecordTable::open`, which creates the tables and switches to WAL.
        let readable = Mutex::new(RecordTable::open_reader(&path.join(RECORDS))?);
        let identities = Identities::of(path).map_err(failed)?;
        let files = Files {
            directory: path.join(OUTPUT),
        };
        Ok(Self {
            path: path.to_owned(),
            records: Mutex::new(records),
            readable,
            owners,
            media: Arc::new(files.clone()),
            files,
            secret,
            identities,
        })
    }

    /// The cursors of a job's named readers. Blocking.
    ///
    /// # Errors
    /// If the records can't be read.
    pub fn cursors(&self, job: &JobId) -> Result<Vec<(CursorName, LineNo)>, StoreError> {
        lock(&self.readable).cursors(job)
    }

    /// Keeps a copy of a record beside the output. Without it, all else works.
    fn keep_record(&self, record: &Record) {
        let kept = serde_json::to_vec(record)
            .map_err(io::Error::from)
            .and_then(|text| self.files.keep_record(&record.id, &text));
        if let Err(error) = kept {
            tracing::warn!(job = %record.id, %error, "no copy of the record is kept, from which it could be rebuilt");
        }
    }

    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    pub(super) fn records(&self) -> LockGuard<'_, RecordTable> {
        lock(&self.records)
    }

    fn io(&self, source: io::Error) -> StoreError {
        StoreError::Io {
            path: self.path.display().to_string(),
            source: Arc::new(source),
        }
    }
}

/// Creates a file with mode 0600, unless it exists. SQLite gives the files beside it the same mode.
pub(super) fn make_private(file: &Path) -> io::Result<()> {
    // Not opened if it exists: closing it would release SQLite's locks (POSIX).
    match OpenOptions::new().append(true).create_new(true).mode(0o600).open(file) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        opened => opened.map(drop),
    }
}

/// Output may contain secrets, so the directory must belong to us and be inaccessible to others.
pub(super) fn check(path: &Path) -> io::Result<()> {
    let found = std::fs::metadata(path)?;
    if found.uid() != rustix::process::getuid().as_raw() {
        return Err(io::Error::other("it belongs to another user"));
    }
    if found.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "others may enter it (mode {:03o}); `chmod 700` it, or name another with --state-dir",
            found.mode() & 0o777
        )));
    }
    Ok(())
}

/// Bytes that a probe writes: more than the rest of a file's last block, which a full disk may still take.
const PROBE_BYTES: usize = 64 << 10;

impl Store for StateDir {
    fn check(&self) -> Result<(), StoreError> {
        if Identities::of(&self.path).is_ok_and(|now| now == self.identities) {
            return Ok(());
        }
        Err(StoreError::Replaced(self.path.display().to_string()))
    }

    fn probe(&self) -> Result<(), StoreError> {
        self.check()?;
        let write = || {
            // Without a name, so that a process that is killed leaves none.
            let mut file = tempfile::tempfile_in(&self.path)?;
            file.write_all(&[b'x'; PROBE_BYTES])?;
            file.sync_data()
        };
        write().map_err(|error| self.io(error))?;
        lock(&self.records).probe()
    }

    fn free_bytes(&self) -> Option<u64> {
        let found = rustix::fs::statvfs(&self.path).ok()?;
        Some(found.f_bavail.saturating_mul(found.f_frsize))
    }

    fn admit(&self, record: &Record) -> Result<Option<Record>, StoreError> {
        // In a replaced directory no other process could find the job.
        self.check()?;
        let known = lock(&self.records).admit(record)?;
        if known.is_none() {
            self.keep_record(record);
        }
        Ok(known)
    }

    fn put(&self, records: &[Record]) -> Result<(), StoreError> {
        lock(&self.records).put(records)
    }

    fn get(&self, id: &JobId) -> Result<Option<Record>, StoreError> {
        lock(&self.readable).get(id)
    }

    fn list(&self, filter: &Filter) -> Result<(Vec<Record>, usize), StoreError> {
        lock(&self.readable).list(filter)
    }

    fn remove(&self, id: &JobId) -> Result<(), StoreError> {
        // First, because output without a record would never be deleted.
        self.media.remove_all(id).map_err(|error| self.io(error))?;
        lock(&self.records).remove(id)
    }

    fn orphans(&self, _is_recorded: &dyn Fn(&JobId) -> bool) -> Result<Vec<Record>, StoreError> {
        // In a replaced directory the files of living owners are missing: they would look dead.
        self.check()?;
        let owners = lock(&self.readable).owners()?;
        let mut orphans = Vec::new();
        for owner in owners.into_iter().filter(|owner| *owner != self.owners.own_name()) {
            if self.owners.about(&owner).map_err(|error| self.io(error))?.is_none() {
                // Read after `about`: some of its jobs may have ended just before the process did.
                orphans.extend(lock(&self.readable).unfinished(&owner)?);
            }
        }
        Ok(orphans)
    }

    fn claim(&self, record: &Record) -> Result<bool, StoreError> {
        self.check()?;
        lock(&self.records).claim(&record.id, &record.owner, self.owners.own_name())
    }

    fn owner(&self, owner: &str) -> Option<String> {
        // A process that can't be looked at may be alive, and its job must not be taken over.
        self.owners.about(owner).unwrap_or_else(|error| {
            tracing::warn!(owner, %error, "can't find out whether a process is alive");
            Some(format!("process {owner}"))
        })
    }

    fn socket(&self, owner: &str) -> Option<PathBuf> {
        Some(self.owners.socket(owner))
    }

    fn results(&self, job: &JobId) -> Option<PathBuf> {
        self.files.results(job).ok()
    }

    fn own_name(&self) -> &str {
        self.owners.own_name()
    }

    fn log(&self, id: &JobId) -> Arc<StoredLog> {
        Arc::new(StoredLog::new(Arc::clone(&self.media), id.clone()))
    }

    fn write(
        &self,
        log: &Arc<StoredLog>,
        limits: LogLimits,
        end: Option<&StoredEnd>,
    ) -> Result<SegmentWriter, StoreError> {
        match end {
            None => Ok(SegmentWriter::new(Arc::clone(log), limits)),
            Some(end) => {
                SegmentWriter::resume(Arc::clone(log), limits, end).map_err(|error| self.io(error))
            }
        }
    }

    fn cursor(&self, job: &JobId, name: &CursorName) -> Result<LineNo, StoreError> {
        lock(&self.readable).cursor(job, name)
    }

    fn move_cursor(
        &self,
        job: &JobId,
        name: &CursorName,
        step: CursorMove,
    ) -> Result<Moved, StoreError> {
        lock(&self.records).move_cursor(job, name, step)
    }

    fn secret(&self) -> [u8; 32] {
        self.secret
    }

    fn shared_text(&self, name: &'static str) -> Result<Box<dyn SharedText>, StoreError> {
        let file = self.path.join(format!("{name}.json"));
        Ok(Box::new(TextInFile::open(file)?))
    }

    fn sweep(&self, bounds: &StoreLimits, now: Timestamp) -> Result<(), StoreError> {
        let old = lock(&self.records).ended_before(now.saturating_sub(bounds.age))?;
        for id in old {
            self.remove(&id)?;
        }
        let excess = lock(&self.records).in_excess_of(bounds.bytes)?;
        for id in excess {
            self.media.remove_all(&id).map_err(|error| self.io(error))?;
            // After the deletion, so that the next sweep repeats one that has failed.
            lock(&self.records).note_evicted(&id)?;
        }
        self.owners.clear().map_err(|error| self.io(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_directory_of_a_newer_sshjobs_is_refused_by_name() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("state");
        drop(StateDir::open(&path, "").unwrap());
        let newer = rusqlite::Connection::open(path.join("jobs.db")).unwrap();
        newer.pragma_update(None, "user_version", 99).unwrap();
        let error = StateDir::open(&path, "").err().unwrap();
        assert!(
            matches!(error, StoreError::Newer { found: 99, .. }),
            "{error}"
        );
    }
}
