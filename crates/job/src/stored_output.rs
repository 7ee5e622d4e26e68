//! A job's output between its recorder and its readers, if it is stored: a queue whose batches the
//! store's thread writes and then shows, and the stored part that readers get evicted lines from.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::archive::{Archive, Coverage, RecordingPlace, StoredPieces};
use super::job::{Job, LOG_LOCK};
use super::storage::Storage;
use crate::log::{
    Backlog, Batch, EndOfJob, Log, LogEvent, OutputStore, Pending, Status, StoreLoad,
};
use sshjobs_base::blocking::run_blocking;
use sshjobs_base::lock::Held;
use sshjobs_base::sync::atomic::Ordering::{self, Relaxed};
use sshjobs_base::sync::lock;
use sshjobs_output::{LineNo, Measure, Selection, Stream, Timestamp};

impl Job {
    /// Stores its output from now on. Only the first call has an effect.
    pub fn store_in(&self, storage: Storage) {
        self.storage.get_or_init(|| storage);
    }

    /// Sets why its output is not stored; `None` if it is.
    pub fn note_trouble(&self, trouble: Option<String>) {
        *lock(&self.trouble) = trouble;
    }

    /// Sets whether the output of another process's job can't be read from the store.
    pub fn note_stale(&self, is_stale: bool) {
        self.is_stale.store(is_stale, Relaxed);
    }

    pub(super) fn with_troubles(&self, status: Status) -> Status {
        let lost_for = self.reach.lost_for();
        Status {
            unstored: self.withheld.get().cloned().or_else(|| self.trouble()),
            is_stale: self.is_stale.load(Relaxed),
            disconnected: if status.ended_at.is_none() {
                lost_for
            } else {
                None
            },
            ..status
        }
    }

    fn trouble(&self) -> Option<String> {
        lock(&self.trouble).clone()
    }

    /// The stored range of its output.
    pub fn coverage(&self) -> Option<Coverage> {
        self.storage.get().map(|storage| storage.archive.coverage())
    }

    /// Whether the store has all output that is in memory.
    pub fn has_ring_in_store(&self) -> bool {
        let Some(stored) = self.coverage() else { return false };
        let (before_first, newest) =
            self.read_log(|log| (log.ring().before_first(), log.ring().newest()));
        stored.begin.newest <= before_first
            && stored.last >= newest
            && stored.forgotten == 0
            && stored.gaps.iter().all(|(_, last_missing)| *last_missing <= before_first)
    }

    pub(super) fn archive(&self) -> Option<&Arc<dyn Archive>> {
        self.storage.get().map(|storage| &storage.archive)
    }

    /// Stored output as it arrived, from a place on; the start without one. `None` if the job is not
    /// stored.
    ///
    /// # Errors
    /// If the store can't be read.
    pub async fn recording(
        &self,
        from: Option<RecordingPlace>,
    ) -> io::Result<Option<StoredPieces>> {
        let Some(archive) = self.archive().cloned() else { return Ok(None) };
        let reading = tokio::task::spawn_blocking(move || archive.recording(from));
        let read = reading.await.map_err(io::Error::other)?;
        read.map(Some)
    }

    /// Shows an event once it is stored. Immediately if the job is not stored, or if the store stands still and too much
    /// waits to be stored.
    pub(super) fn keep(&self, event: LogEvent, now: Instant) {
        let Some((storage, output_store)) = self.storage_and_store() else {
            self.write_log(|log| log.take(&event, log.time_at(now), now));
            return;
        };
        let mut pending = lock(&storage.pending);
        let before = pending.bytes;
        let is_first = pending.push(event, now);
        output_store.account(weight(pending.bytes - before));
        if pending.is_too_long(output_store.load()) {
            self.show_unstored(&mut pending, &**output_store);
            self.note_trouble(Some(
                "nothing can be stored now, and more output comes than may wait".to_owned(),
            ));
        }
        drop(pending);
        if is_first {
            // One call is enough: the store's thread takes batches until the queue is empty.
            output_store.notify(&self.id);
        }
    }

    /// Drops the output that waits to be stored, without showing it: another machine records the job
    /// now, and numbers its lines.
    pub fn drop_pending(&self) {
        let Some((storage, output_store)) = self.storage_and_store() else { return };
        let mut pending = lock(&storage.pending);
        output_store.account(-weight(pending.bytes));
        pending.give_up();
        drop(pending);
        self.wake_recorder();
    }

    /// Where its output is stored, and who stores it. `None` if this process does not store it.
    fn storage_and_store(&self) -> Option<(&Storage, &Arc<dyn OutputStore>)> {
        let storage = self.storage.get()?;
        Some((storage, storage.output_store.as_ref()?))
    }

    /// Shows all pending output if the oldest has waited longer than `patience`, so that a hung
    /// disk does not hide it. It counts as not stored. Returns whether any was overdue.
    pub fn show_overdue(&self, patience: Duration) -> bool {
        let Some((storage, output_store)) = self.storage_and_store() else {
            return false;
        };
        let mut pending = lock(&storage.pending);
        let is_overdue = pending.is_overdue(patience);
        if is_overdue {
            self.show_unstored(&mut pending, &**output_store);
        }
        is_overdue
    }

    /// Whether output has waited longer than `limit` for the store.
    pub fn is_overdue(&self, limit: Duration) -> bool {
        self.storage
            .get()
            .is_some_and(|storage| lock(&storage.pending).is_overdue(limit))
    }

    fn show_unstored(&self, pending: &mut Pending, output_store: &dyn OutputStore) {
        let before = pending.bytes;
        // The queue stays locked, so that no later event is shown before these.
        self.write_log(|log| {
            pending.skip(output_store.end_of_job(), |event, now| {
                log.take(event, log.time_at(now), now);
                log.ring().newest()
            });
        });
        output_store.account(-weight(before - pending.bytes));
    }

    /// Waits while the store is far behind, so that the rest of the output stays at the far end. A store that stands
    /// still is not waited for, unless readers on other machines need its numbers and the host keeps the output. Returns
    /// whether this has waited. Cancel safe.
    pub async fn wait_for_store(&self, backlog: Backlog) -> bool {
        let Some((storage, output_store)) = self.storage_and_store() else {
            return false;
        };
        let is_far_behind = lock(&storage.pending).is_far_behind(output_store.load());
        if !is_far_behind || self.passes_unstored(backlog, &**output_store) {
            return false;
        }
        self.wait_while(|pending| {
            pending.is_behind(output_store.load())
                && !self.passes_unstored(backlog, &**output_store)
        })
        .await;
        true
    }

    /// Whether output passes without being stored.
    fn passes_unstored(&self, backlog: Backlog, output_store: &dyn OutputStore) -> bool {
        let stands_still = matches!(
            output_store.load(),
            StoreLoad::StandsStill | StoreLoad::IsFull
        );
        let waits = output_store.end_of_job() == EndOfJob::WaitsForStore;
        stands_still && !(waits && backlog == Backlog::IsKeptByHost)
    }

    /// Has a recorder that waits for the store ask again whether it has to.
    pub fn wake_recorder(&self) {
        self.log.send_modify(|_| {});
    }

    /// Resolves when no output waits to be stored, or after `patience`. Returns whether none waits.
    /// Output that was shown without being stored does not wait.
    pub async fn all_stored(&self, patience: Duration) -> bool {
        let emptied = self.wait_while(|pending| pending.oldest().is_some());
        tokio::time::timeout(patience, emptied).await.is_ok()
    }

    /// Waits until a condition of the queue is false.
    async fn wait_while(&self, condition: impl Fn(&Pending) -> bool) {
        let Some(storage) = self.storage.get() else { return };
        let mut log = self.log.subscribe();
        log.mark_unchanged();
        // Every removal from the queue notifies the log.
        while condition(&lock(&storage.pending)) {
            log.changed().await.expect("a job owns its log");
        }
    }

    /// The next output to store, about `most` bytes; `None` if none is pending. The batch has a
    /// checkpoint if the caller `wants_checkpoint`, or if earlier output was not stored. Call
    /// [`show`](Self::show) before taking the next batch.
    pub fn take_batch(&self, most: usize, wants_checkpoint: bool) -> Option<Arc<Batch>> {
        let mut pending = lock(&self.storage.get()?.pending);
        // The queue stays locked: nothing is shown between the checkpoint and its batch, so the
        // checkpoint is the log right before these events.
        let _held = Held::new(LOG_LOCK);
        let log = self.log.borrow();
        pending.take(
            most,
            |now| log.time_at(now),
            |has_gap: bool| (has_gap || wants_checkpoint).then(|| log.ring().checkpoint()),
        )
    }

    /// Shows a batch after the attempt to store it. A batch that was overdue, or for which there
    /// was no room, is shown already.
    ///
    /// Returns the newest line that is stored now. `None` if the batch was not stored.
    pub fn show(&self, batch: &Arc<Batch>, is_stored: bool) -> Option<LineNo> {
        let storage = self.storage.get()?;
        let mut pending = lock(&storage.pending);
        let before = pending.bytes;
        // `show_unstored` has shown an overtaken batch. Here only its newest line is needed.
        let mut newest = pending.take_overtaken(batch);
        // Events after an overtaken batch may never be stored. Then the trouble remains.
        if is_stored && newest.is_some() && !pending.has_skipped() {
            self.note_trouble(None);
        }
        if !is_stored {
            pending.note_unstored();
        }
        if pending.mark_shown(batch) {
            if is_stored {
                self.note_trouble(None);
            }
            newest = Some(self.write_log(|log| {
                batch.events.iter().for_each(|(event, at, now)| log.take(event, *at, *now));
                log.ring().newest()
            }));
        }
        if let Some(output_store) = &storage.output_store {
            // Zero for an overtaken batch: `show_unstored` has subtracted its bytes.
            output_store.account(-weight(before - pending.bytes));
        }
        if is_stored { newest } else { None }
    }

    /// Applies an event that another process has stored.
    pub fn mirror(&self, event: &LogEvent, at: Timestamp) {
        self.write_log(|log| log.take(event, at, Instant::now()));
    }

    /// Evicts the oldest output until at most `bytes` are kept.
    pub fn trim(&self, bytes: usize) {
        self.write_log(|log| log.ring_mut().trim(bytes));
    }

    /// Marks its record as out of date.
    pub fn note_change(&self) {
        let Some(output_store) =
            self.storage.get().and_then(|storage| storage.output_store.as_ref())
        else {
            return;
        };
        if !self.is_changed.swap(true, Ordering::AcqRel) {
            output_store.note_change(&self.id);
        }
    }

    /// Clears the mark of [`note_change`](Self::note_change). Call it before reading the job, so
    /// that later changes set it again.
    pub fn take_changed(&self) {
        self.is_changed.store(false, Ordering::Release);
    }

    /// Deletes the finished lines of the selected streams. Returns the number of lines and bytes
    /// deleted.
    pub async fn forget_output(&self, selection: Selection) -> (u64, u64) {
        let coverage = self.coverage().unwrap_or_default();
        let kept = |log: &Log, measure| {
            Stream::ALL
                .into_iter()
                .filter(|&stream| selection.contains(stream))
                .map(|stream| {
                    let end =
                        log.ring().extent(log.ring().newest(), Selection::Only(stream), measure);
                    end.saturating_sub(coverage.available_from(log.ring(), stream, measure))
                })
                .sum::<u64>()
        };
        // Counted under the lock that deletes, so that a line that ends meanwhile is not counted.
        let (gone, newest) = self.write_log(|log| {
            let gone = (kept(log, Measure::Lines), kept(log, Measure::Bytes));
            log.ring_mut().forget(selection);
            (gone, log.ring().newest())
        });
        // Up to `newest`, because later lines arrived after the ring was cleared.
        if let Some(archive) = self.archive().cloned() {
            run_blocking(move || archive.forget(selection, newest)).await;
        }
        gone
    }

    /// Deletes the lines that another process has deleted from the store. Blocking.
    ///
    /// # Errors
    /// If the store can't be read.
    pub fn forget_deleted(&self) -> io::Result<()> {
        let Some(archive) = self.archive() else { return Ok(()) };
        let deleted = archive.read_deleted()?;
        self.write_log(|log| {
            for stream in Stream::ALL {
                log.ring_mut().forget_until(stream, deleted.position(stream).last_line);
            }
        });
        Ok(())
    }
}

fn weight(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}
