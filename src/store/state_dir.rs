use std::fs::DirBuilder;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rand::RngExt;

use super::files::Files;
use super::media::Media;
use super::owners::Owners;
use super::sqlite::Records;
use super::{Bounds, Filter, LogLimits, LogWriter, Record, Store, StoreError, StoredEnd, StoredLog};
use crate::job::JobId;
use crate::lock::lock;
use crate::output::Timestamp;

/// A store in a directory of the user's own: `jobs.db`, `output/` and `owners/`.
pub struct StateDir {
    path: PathBuf,
    records: Mutex<Records>,
    owners: Owners,
    media: Arc<dyn Media>,
    secret: [u8; 32],
}

impl StateDir {
    /// Opens a state directory; makes it, 0700, if it is not there. Others see this `process` as the owner of its jobs. Blocking.
    ///
    /// # Errors
    /// When it can't be made or written, is another user's, or was written by a newer sshjobs.
    pub fn open(path: &Path, process: &str) -> Result<Self, StoreError> {
        let failed =
            |source: io::Error| StoreError::Io { path: path.display().to_string(), source: Arc::new(source) };
        let make = |directory: &Path| {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)
        };
        make(path)?;
        check(path).map_err(failed)?;
        make(&path.join("output"))?;
        make(&path.join("owners"))?;
        let owners = Owners::enter(&path.join("owners"), process).map_err(failed)?;
        let records = Records::open(&path.join("jobs.db"))?;
        let secret = records.shared_secret(rand::rng().random())?;
        let media = Arc::new(Files { directory: path.join("output") });
        Ok(Self { path: path.to_owned(), records: Mutex::new(records), owners, media, secret })
    }

    fn io(&self, source: io::Error) -> StoreError {
        StoreError::Io { path: self.path.display().to_string(), source: Arc::new(source) }
    }
}

/// Output may hold secrets: the directory is ours, and nobody else may look into it.
fn check(path: &Path) -> io::Result<()> {
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

impl Store for StateDir {
    fn admit(&self, record: &Record) -> Result<Option<Record>, StoreError> {
        lock(&self.records).admit(record)
    }

    fn put(&self, records: &[Record]) -> Result<(), StoreError> {
        lock(&self.records).put(records)
    }

    fn get(&self, id: &JobId) -> Result<Option<Record>, StoreError> {
        lock(&self.records).get(id)
    }

    fn list(&self, filter: &Filter) -> Result<(Vec<Record>, usize), StoreError> {
        lock(&self.records).list(filter)
    }

    fn remove(&self, id: &JobId) -> Result<(), StoreError> {
        self.media.remove_all(id).map_err(|error| self.io(error))?;
        lock(&self.records).remove(id)
    }

    fn orphans(&self) -> Result<Vec<Record>, StoreError> {
        let owners = lock(&self.records).owners()?;
        let mut orphans = Vec::new();
        for owner in owners.into_iter().filter(|owner| *owner != self.owners.own_name()) {
            if self.owners.about(&owner).map_err(|error| self.io(error))?.is_none() {
                orphans.extend(lock(&self.records).unfinished(&owner)?);
            }
        }
        Ok(orphans)
    }

    fn claim(&self, record: &Record) -> Result<bool, StoreError> {
        lock(&self.records).claim(&record.id, (&record.owner, self.owners.own_name()))
    }

    fn owner(&self, owner: &str) -> Option<String> {
        self.owners.about(owner).ok().flatten()
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
    ) -> Result<LogWriter, StoreError> {
        match end {
            None => Ok(LogWriter::new(Arc::clone(log), limits)),
            Some(end) => LogWriter::resume(Arc::clone(log), limits, end).map_err(|error| self.io(error)),
        }
    }

    fn secret(&self) -> [u8; 32] {
        self.secret
    }

    fn sweep(&self, bounds: &Bounds, now: Timestamp) -> Result<(), StoreError> {
        let old = lock(&self.records).ended_before(now.saturating_sub(bounds.age))?;
        for id in old {
            self.remove(&id)?;
        }
        let excess = lock(&self.records).in_excess_of(bounds.bytes)?;
        for id in excess {
            self.media.remove_all(&id).map_err(|error| self.io(error))?;
            lock(&self.records).note_evicted(&id)?;
        }
        self.owners.clear().map_err(|error| self.io(error))
    }
}
