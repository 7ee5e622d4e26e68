//! Access to a job's queue: for its recorder, and for the store.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::job::{Job, LOG_LOCK};
use crate::keeping::{Batch, EndOfJob, OutputQueue, OutputStore, Storage, StoreAttempt, StoreLoad};
use crate::log::{Backlog, LogEvent, Status};
use sshjobs_base::lock::Held;
use sshjobs_base::sync::atomic::Ordering::{self, Relaxed};
use sshjobs_base::sync::{LockGuard, lock};
use sshjobs_output::LineNo;

/// A locked queue. The bytes that it gains or loses while it is locked are reported to the store.
struct LockedQueue<'a> {
    queue: LockGuard<'a, OutputQueue>,
    store: &'a dyn OutputStore,
    bytes_before: usize,
}

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

    pub(crate) fn with_troubles(&self, status: Status) -> Status {
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

    /// Shows an event once it is stored. Immediately if the job is not stored, or if the store stands still and too much
    /// waits to be stored.
    pub(crate) fn keep(&self, event: LogEvent, now: Instant) {
        let Some(mut queue) = self.lock_queue() else {
            self.write_log(|log| log.take(&event, log.time_at(now), now));
            return;
        };
        let store = queue.store;
        let calls_store = queue.push(event, now);
        // Reported now, because it counts in the load.
        queue.report_bytes();
        if queue.is_too_long(store.load()) {
            self.show_unstored(&mut queue);
            self.note_trouble(Some(
                "nothing can be stored now, and more output comes than may wait".to_owned(),
            ));
        }
        drop(queue);
        if calls_store {
            store.notify(&self.id);
        }
    }

    /// Drops the output that waits to be stored, without showing it: another machine records the job
    /// now, and numbers its lines.
    pub fn drop_pending(&self) {
        let Some(mut queue) = self.lock_queue() else { return };
        queue.give_up();
        drop(queue);
        self.wake_recorder();
    }

    /// Its queue. `None` if this process does not store its output.
    fn lock_queue(&self) -> Option<LockedQueue<'_>> {
        let storage = self.storage.get()?;
        let store = storage.output_store.as_deref()?;
        let queue = lock(&storage.queue);
        Some(LockedQueue {
            bytes_before: queue.bytes(),
            queue,
            store,
        })
    }

    /// Shows all pending output if the oldest has waited longer than `limit`, so that a hung
    /// disk does not hide it. It counts as not stored. Returns whether any was overdue.
    pub fn show_overdue(&self, limit: Duration) -> bool {
        let Some(mut queue) = self.lock_queue() else { return false };
        let is_overdue = queue.is_overdue(limit);
        if is_overdue {
            self.show_unstored(&mut queue);
        }
        is_overdue
    }

    /// Whether the store writes some of its output now.
    pub fn is_being_written(&self) -> bool {
        self.storage
            .get()
            .is_some_and(|storage| lock(&storage.queue).is_being_written())
    }

    /// Whether output has waited longer than `limit` for the store.
    pub fn is_overdue(&self, limit: Duration) -> bool {
        self.storage.get().is_some_and(|storage| lock(&storage.queue).is_overdue(limit))
    }

    fn show_unstored(&self, queue: &mut LockedQueue<'_>) {
        let end_of_job = queue.store.end_of_job();
        // The queue stays locked, so that no later event is shown before these.
        self.write_log(|log| {
            queue.show_early(end_of_job, |event, now| {
                log.take(event, log.time_at(now), now);
                log.ring().newest()
            });
        });
    }

    /// Waits while the store is far behind, so that the rest of the output stays at the far end. A store that stands
    /// still is not waited for, unless readers on other machines need its numbers and the host keeps the output. Returns
    /// whether this has waited. Cancel safe.
    pub async fn wait_for_store(&self, backlog: Backlog) -> bool {
        let Some(storage) = self.storage.get() else { return false };
        let Some(store) = storage.output_store.as_deref() else { return false };
        let is_far_behind = lock(&storage.queue).is_far_behind(store.load());
        if !is_far_behind || passes_unstored(backlog, store) {
            return false;
        }
        self.wait_while(|queue| queue.is_behind(store.load()) && !passes_unstored(backlog, store))
            .await;
        true
    }

    /// Has a recorder that waits for the store ask again whether it has to.
    pub fn wake_recorder(&self) {
        self.log.send_modify(|_| {});
    }

    /// Resolves when no output waits to be stored, or after `limit`. Returns whether none waits.
    /// Output that was shown without being stored does not wait.
    pub async fn all_stored(&self, limit: Duration) -> bool {
        let emptied = self.wait_while(|queue| queue.oldest().is_some());
        tokio::time::timeout(limit, emptied).await.is_ok()
    }

    /// Waits until a condition of the queue is false.
    async fn wait_while(&self, condition: impl Fn(&OutputQueue) -> bool) {
        let Some(storage) = self.storage.get() else { return };
        let mut log = self.log.subscribe();
        log.mark_unchanged();
        // Every removal from the queue notifies the log.
        while condition(&lock(&storage.queue)) {
            log.changed().await.expect("a job owns its log");
        }
    }

    /// The next output to store, about `most` bytes; `None` if none is pending. The batch has a
    /// checkpoint if the caller `wants_checkpoint`, or if earlier output was not stored. Call
    /// [`show_attempted`](Self::show_attempted) before taking the next batch.
    pub fn take_batch(&self, most: usize, wants_checkpoint: bool) -> Option<Arc<Batch>> {
        let mut queue = lock(&self.storage.get()?.queue);
        // The queue stays locked: nothing is shown between the checkpoint and its batch, so the
        // checkpoint is the log right before these events.
        let _held = Held::new(LOG_LOCK);
        let log = self.log.borrow();
        queue.take(
            most,
            |now| log.time_at(now),
            |has_gap: bool| (has_gap || wants_checkpoint).then(|| log.ring().checkpoint()),
        )
    }

    /// Shows the batch that was taken, after the attempt to store it. A batch that was overdue, or for which
    /// there was no room, is shown already.
    ///
    /// Returns the newest line that is stored now. `None` if the batch was not stored.
    pub fn show_attempted(&self, is_stored: bool) -> Option<LineNo> {
        let mut queue = self.lock_queue()?;
        let newest = match queue.note_attempt(is_stored) {
            StoreAttempt::GivenUp => None,
            // Events after these may never be stored. Then the trouble remains.
            StoreAttempt::ShownBefore(newest) => {
                if is_stored && !queue.follows_gap() {
                    self.note_trouble(None);
                }
                Some(newest)
            }
            StoreAttempt::ToShow(batch) => {
                if is_stored {
                    self.note_trouble(None);
                }
                Some(self.write_log(|log| {
                    batch.events.iter().for_each(|(event, at, now)| log.take(event, *at, *now));
                    log.ring().newest()
                }))
            }
        };
        if is_stored { newest } else { None }
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
}

/// Whether output passes without being stored.
fn passes_unstored(backlog: Backlog, store: &dyn OutputStore) -> bool {
    let stands_still = matches!(store.load(), StoreLoad::StandsStill | StoreLoad::IsFull);
    let waits = store.end_of_job() == EndOfJob::WaitsForStore;
    stands_still && !(waits && backlog == Backlog::IsKeptByHost)
}

impl LockedQueue<'_> {
    /// Reports how many bytes it has gained or lost since the last report.
    fn report_bytes(&mut self) {
        let bytes = self.queue.bytes();
        self.store.account(weight(bytes) - weight(self.bytes_before));
        self.bytes_before = bytes;
    }
}

fn weight(bytes: usize) -> isize {
    isize::try_from(bytes).unwrap_or(isize::MAX)
}

impl Deref for LockedQueue<'_> {
    type Target = OutputQueue;

    fn deref(&self) -> &OutputQueue {
        &self.queue
    }
}

impl DerefMut for LockedQueue<'_> {
    fn deref_mut(&mut self) -> &mut OutputQueue {
        &mut self.queue
    }
}

impl Drop for LockedQueue<'_> {
    fn drop(&mut self) {
        self.report_bytes();
    }
}
