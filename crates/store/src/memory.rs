//! A store without a disk.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use rand::RngExt;

use super::buffers::Buffers;
use super::faulty_media::{DiskFault, FaultyMedia};
use super::media::Media;
use super::{
    Filter, LogLimits, MemoryText, Record, SegmentWriter, SharedText, Store, StoreError,
    StoreLimits, StoredEnd, StoredLog,
};
use sshjobs_base::lock::{LockGuard, lock};
use sshjobs_job::{CursorMove, CursorName, Cursors, JobId, Moved};
use sshjobs_output::{LineNo, Timestamp};

/// A store in memory, for tests. Stores that
/// [join](Self::join) it act as other processes.
pub struct Memory {
    shared: Arc<MemoryState>,
    name: String,
}

struct MemoryState {
    records: Mutex<BTreeMap<JobId, Record>>,
    owners: Mutex<BTreeSet<String>>,
    cursors: Mutex<BTreeMap<JobId, Arc<Cursors>>>,
    texts: Mutex<BTreeMap<&'static str, MemoryText>>,
    media: Arc<dyn Media>,
    secret: [u8; 32],
}

impl Default for Memory {
    fn default() -> Self {
        Self::on(Arc::new(Buffers::default()))
    }
}

impl Memory {
    /// A store whose appends can fail.
    pub fn with_fault(fault: Arc<DiskFault>) -> Self {
        let media = Buffers::default();
        Self::on(Arc::new(FaultyMedia { media, fault }))
    }

    fn on(media: Arc<dyn Media>) -> Self {
        Self::enter(Arc::new(MemoryState {
            records: Mutex::default(),
            owners: Mutex::default(),
            cursors: Mutex::default(),
            texts: Mutex::default(),
            media,
            secret: rand::rng().random(),
        }))
    }

    /// A store of another process, with the same records and output.
    #[must_use]
    pub fn join(&self) -> Self {
        Self::enter(Arc::clone(&self.shared))
    }

    fn enter(shared: Arc<MemoryState>) -> Self {
        let name = format!("{:08x}", rand::rng().random::<u32>());
        lock(&shared.owners).insert(name.clone());
        Self { shared, name }
    }

    fn cursors_of(&self, job: &JobId) -> Arc<Cursors> {
        Arc::clone(lock(&self.shared.cursors).entry(job.clone()).or_default())
    }

    fn records(&self) -> LockGuard<'_, BTreeMap<JobId, Record>> {
        lock(&self.shared.records)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        lock(&self.shared.owners).remove(&self.name);
    }
}

impl Store for Memory {
    fn admit(&self, record: &Record) -> Result<Option<Record>, StoreError> {
        // Locked to the end, so that of two jobs with one key only one is admitted.
        let mut records = self.records();
        let earlier = records
            .values()
            .find(|known| known.caller == record.caller && known.key == record.key);
        // Two records without a key have equal keys, too.
        if record.key.is_some()
            && let Some(earlier) = earlier
        {
            return Ok(Some(earlier.clone()));
        }
        records.insert(record.id.clone(), record.clone());
        Ok(None)
    }

    fn check(&self) -> Result<(), StoreError> {
        Ok(())
    }

    fn put(&self, records: &[Record]) -> Result<(), StoreError> {
        let mut known = self.records();
        for record in records {
            if let Some(known) = known.get_mut(&record.id)
                && known.owner == record.owner
            {
                *known = record.clone();
            }
        }
        Ok(())
    }

    fn get(&self, id: &JobId) -> Result<Option<Record>, StoreError> {
        Ok(self.records().get(id).cloned())
    }

    fn list(&self, filter: &Filter) -> Result<(Vec<Record>, usize), StoreError> {
        let mut found: Vec<Record> = self
            .records()
            .values()
            .filter(|record: &&Record| {
                filter.caller.as_ref().is_none_or(|caller| *caller == record.caller)
                    && filter.host.as_ref().is_none_or(|host| *host == record.host)
                    && filter
                        .label
                        .as_ref()
                        .is_none_or(|label| record.label.as_ref() == Some(label))
                    && (filter.members || record.member_of.is_none())
                    && filter.state.is_none_or(|state| state == record.state())
            })
            .cloned()
            .collect();
        found.sort_by_key(|record| (std::cmp::Reverse(record.started_at), record.id.clone()));
        let total = found.len();
        found.truncate(filter.limit);
        Ok((found, total))
    }

    fn remove(&self, id: &JobId) -> Result<(), StoreError> {
        self.records().remove(id);
        lock(&self.shared.cursors).remove(id);
        self.shared.media.remove_all(id).map_err(failed)
    }

    fn orphans(&self, _is_recorded: &dyn Fn(&JobId) -> bool) -> Result<Vec<Record>, StoreError> {
        let owners = lock(&self.shared.owners);
        Ok(self
            .records()
            .values()
            .filter(|record: &&Record| record.outcome.is_none() && !owners.contains(&record.owner))
            .cloned()
            .collect())
    }

    fn claim(&self, record: &Record) -> Result<bool, StoreError> {
        let mut records = self.records();
        let Some(known) = records.get_mut(&record.id) else { return Ok(false) };
        if known.owner != record.owner || known.outcome.is_some() {
            return Ok(false);
        }
        known.owner.clone_from(&self.name);
        Ok(true)
    }

    fn owner(&self, owner: &str) -> Option<String> {
        lock(&self.shared.owners).contains(owner).then(|| format!("process {owner}"))
    }

    fn socket(&self, _owner: &str) -> Option<PathBuf> {
        None
    }

    fn own_name(&self) -> &str {
        &self.name
    }

    fn log(&self, id: &JobId) -> Arc<StoredLog> {
        let media = Arc::clone(&self.shared.media);
        Arc::new(StoredLog::new(media, id.clone()))
    }

    fn write(
        &self,
        log: &Arc<StoredLog>,
        limits: LogLimits,
        end: Option<&StoredEnd>,
    ) -> Result<SegmentWriter, StoreError> {
        match end {
            None => Ok(SegmentWriter::new(Arc::clone(log), limits)),
            Some(end) => SegmentWriter::resume(Arc::clone(log), limits, end).map_err(failed),
        }
    }

    fn cursor(&self, job: &JobId, name: &CursorName) -> Result<LineNo, StoreError> {
        Ok(self.cursors_of(job).cursor(name))
    }

    fn move_cursor(
        &self,
        job: &JobId,
        name: &CursorName,
        step: CursorMove,
    ) -> Result<Moved, StoreError> {
        Ok(self.cursors_of(job).move_to(name, step))
    }

    fn secret(&self) -> [u8; 32] {
        self.shared.secret
    }

    fn shared_text(&self, name: &'static str) -> Result<Box<dyn SharedText>, StoreError> {
        Ok(Box::new(
            lock(&self.shared.texts).entry(name).or_default().clone(),
        ))
    }

    fn sweep(&self, bounds: &StoreLimits, now: Timestamp) -> Result<(), StoreError> {
        let oldest = now.saturating_sub(bounds.age);
        self.records().retain(|id, record| {
            let stays = record.ended_at.is_none_or(|ended_at| ended_at >= oldest);
            if !stays {
                // Memory can't fail.
                self.shared.media.remove_all(id).ok();
                lock(&self.shared.cursors).remove(id);
            }
            stays
        });
        let mut records = self.records();
        let mut excess = records
            .values()
            .map(|record| record.stored_bytes)
            .sum::<u64>()
            .saturating_sub(bounds.bytes);
        let mut finished: Vec<&mut Record> =
            records.values_mut().filter(|record| record.ended_at.is_some()).collect();
        finished.sort_by_key(|record| record.ended_at);
        for record in finished.into_iter().filter(|record| record.stored_bytes > 0) {
            if excess == 0 {
                break;
            }
            excess = excess.saturating_sub(record.stored_bytes);
            (record.stored_bytes, record.dropped_lines) = (0, record.total_lines);
            self.shared.media.remove_all(&record.id).map_err(failed)?;
        }
        Ok(())
    }
}

fn failed(source: std::io::Error) -> StoreError {
    StoreError::Io {
        path: "memory".to_owned(),
        source: Arc::new(source),
    }
}
