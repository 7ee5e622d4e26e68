//! The work of the threads that store output: `sshjobs-output`, `sshjobs-sync` and `sshjobs-overdue`.

use std::io;
use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::kept_job::JobBeingStored;
use super::requests::Task;
use super::storing::Storing;
use sshjobs_base::sync::atomic::Ordering::Relaxed;
use sshjobs_base::sync::lock;
use sshjobs_job::{Job, JobId};
use sshjobs_store::{CompleteSegment, StoreError};

/// Output is shown before it is stored once nothing at all was stored for this time.
pub(super) const OVERDUE: Duration = Duration::from_secs(5);
/// Approximate bytes written at once.
const BATCH: usize = 64 << 10;
/// Batches of one job after which other jobs get their turn.
const TURN: usize = 16;

impl Storing {
    /// Stores pending output of a job, and shows it.
    pub(super) fn store_output(&self, id: &JobId) {
        let Some(kept) = lock(&self.kept).get(id).cloned() else { return };
        let job = &kept.job;
        let mut writer = lock(&kept.writer);
        for _ in 0..TURN {
            let to_store_again = lock(&kept.batch_to_store_again).take();
            let next = to_store_again.or_else(|| job.take_batch(BATCH, writer.wants_checkpoint()));
            let Some(batch) = next else { return };
            let stored = if self.is_gone.load(Relaxed) {
                Err(gone())
            } else {
                writer.append(&batch)
            };
            kept.stored_bytes.store(writer.bytes(), Relaxed);
            self.queue_for_filters(job, writer.take_complete());
            if let Err(error) = &stored {
                tracing::debug!(job = %job.id, %error, "output can't be stored");
                self.health.count_error();
                if self.is_shared && !self.is_kept(&kept) {
                    return;
                }
                let is_taken_over = self.is_shared && error.kind() == ErrorKind::PermissionDenied;
                // Not shown: the machine that has taken the job over numbers its lines. If too many jobs
                // wait to be given up, the next attempt to store the batch reports this one again.
                if is_taken_over && self.taken_over.try_send(id.clone()).is_ok() {
                    return;
                }
                if self.is_shared {
                    // Not shown until it is stored: other machines must give its lines the same numbers.
                    // The limits of `Job::keep` bound what waits.
                    job.note_trouble(Some(format!("its output waits to be stored: {error}")));
                    *lock(&kept.batch_to_store_again) = Some(batch);
                    lock(&self.to_store_again).insert(id.clone());
                    return;
                }
                if kept.waits_for_room(error) {
                    job.note_trouble(Some(format!("its output waits to be stored: {error}")));
                    *lock(&kept.batch_to_store_again) = Some(batch);
                    lock(&self.to_store_again).insert(id.clone());
                    self.note_progress();
                    return;
                }
                job.note_trouble(Some(format!("its output can't be stored: {error}")));
            } else {
                *lock(&kept.full_since) = None;
            }
            self.note_progress();
            // After the append: a reader must find shown lines in the store.
            let newest = job.show_attempted(stored.is_ok());
            if let Some(newest) = newest {
                writer.note_newest(newest);
            }
            // An end that was shown early is in no batch.
            if batch.is_end || job.is_over() {
                self.tasks.send(Task::Put(id.clone())).ok();
            }
        }
        // The job's queue is not empty, so the job itself does not notify this thread again.
        self.calls.send(id.clone()).ok();
    }

    /// Has filters written for complete segments.
    fn queue_for_filters(&self, job: &Job, segments: Vec<CompleteSegment>) {
        // In a shared store, a segment is read over the network, and so would be its filters. The output of
        // a fleet is searched line by line, because a pattern may match the names of hosts.
        if self.is_shared || job.spec.fleet.is_some() {
            return;
        }
        for segment in segments {
            // A full queue, or a thread that could not be started, costs only time.
            self.complete_segments.try_send(segment).ok();
        }
    }

    /// Whether output is still stored by this writer. Not if the job was given up, even if it was
    /// taken over again since.
    fn is_kept(&self, kept: &JobBeingStored) -> bool {
        let all = lock(&self.kept);
        all.get(&kept.job.id).is_some_and(|known| Arc::ptr_eq(&known.job, &kept.job))
    }

    /// Notes that the store has written something, or failed to, and so does not stand still.
    fn note_progress(&self) {
        *lock(&self.progress) = Instant::now();
        self.stands_still.store(false, Relaxed);
    }

    /// Calls the threads that write output again for all jobs whose output could not be stored.
    fn store_again(&self) {
        for id in std::mem::take(&mut *lock(&self.to_store_again)) {
            self.calls.send(id).ok();
        }
    }

    /// Marks each job as unstored if the state directory was moved or deleted.
    fn look_whether_gone(&self, kept: &[Arc<JobBeingStored>]) {
        let Err(error @ StoreError::Replaced(_)) = self.store.check() else { return };
        if !self.is_gone.swap(true, Relaxed) {
            tracing::error!(%error, "nothing is stored any more");
        }
        for kept in kept.iter().filter(|kept| !kept.is_settled.load(Relaxed)) {
            kept.job.note_trouble(Some(error.to_string()));
        }
    }

    /// Syncs written output to disk, and drops jobs that are stored to their end.
    pub(crate) fn sync_all(&self) {
        let kept: Vec<_> = lock(&self.kept).values().cloned().collect();
        self.look_whether_gone(&kept);
        for kept in kept {
            // Read before the sync: output that is written between the two needs another sync.
            let is_settled = kept.is_settled.load(Relaxed);
            sync(&kept);
            if is_settled {
                lock(&self.kept).remove(&kept.job.id);
            }
        }
    }

    /// Shows output that waits too long for a disk, or has output stored again that a shared store
    /// could not take. Does no I/O, so that a hung disk can't stop it.
    pub(crate) fn show_overdue_or_store_again(&self) {
        self.store_again();
        // A slow disk that makes progress is waited for.
        if lock(&self.progress).elapsed() < OVERDUE {
            return;
        }
        let kept: Vec<_> = lock(&self.kept).values().cloned().collect();
        let is_overdue = kept.iter().any(|kept| kept.job.is_overdue(OVERDUE));
        if is_overdue && !self.stands_still.swap(true, Relaxed) {
            kept.iter().for_each(|kept| kept.job.wake_recorder());
        }
        if self.is_shared {
            return;
        }
        for kept in kept {
            if kept.job.show_overdue(OVERDUE) {
                kept.job.note_trouble(Some(format!("nothing could be stored for {OVERDUE:?}")));
            }
        }
    }

    /// Closes the files of all jobs if there are too many. Each is opened again when it is written to.
    pub(super) fn close_files_if_many(&self) {
        let kept: Vec<_> = lock(&self.kept).values().cloned().collect();
        if kept.len() <= self.store.most_open() {
            return;
        }
        for kept in kept {
            // A writer that is in use may wait for a hung disk. The next round closes its file.
            if let Ok(mut writer) = kept.writer.try_lock() {
                writer.close_file();
            }
        }
    }
}

fn sync(kept: &JobBeingStored) {
    // Taken out of the lock, so that no writer waits for the disk.
    let unsynced = lock(&kept.writer).take_unsynced();
    if let Some(Err(error)) = unsynced.map(|unsynced| unsynced.sync()) {
        // A job that has ended keeps this trouble, and so stays in memory.
        kept.job
            .note_trouble(Some(format!("its output did not reach the disk: {error}")));
        tracing::warn!(job = %kept.job.id, %error, "output did not reach the disk");
    }
}

fn gone() -> io::Error {
    io::Error::other("the state directory was removed or replaced; restart this process")
}
