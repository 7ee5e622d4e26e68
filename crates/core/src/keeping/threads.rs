//! The threads that store output and records.

use std::collections::VecDeque;
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

#[cfg(target_os = "linux")]
use rustix::{process::setpriority_process, thread::gettid};
use tokio::time::Instant;

use super::health::warn;
use super::requests::{StoringRequests, Task};
use super::storing::{MOST_TO_FILTER, Storing};
use sshjobs_base::sync::atomic::Ordering::Relaxed;
use sshjobs_base::sync::mpsc::Receiver;
use sshjobs_base::sync::{Mutex, lock};
use sshjobs_job::JobId;
use sshjobs_store::CompleteSegment;

/// Interval at which written output is synced to disk and records of running jobs are updated.
const ROUND: Duration = Duration::from_secs(1);
/// Interval at which stored jobs that exceed a limit are deleted.
const SWEEP: Duration = Duration::from_secs(30);
const FIRST_SWEEP: Duration = Duration::from_secs(2);
/// Time without stored output that counts as a pause, and after which filters are written without one.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Priority of work in the background, on the scale of nice(1).
#[cfg(target_os = "linux")]
const LOWEST_PRIORITY: i32 = 19;
/// Maximum requests handled together by the records thread.
const MOST_TASKS: usize = 256;

impl StoringRequests {
    /// Handles the requests in threads that end with `storing`.
    pub(super) fn handle_in_threads(self, storing: &Arc<Storing>) -> std::io::Result<()> {
        let Self {
            called,
            tasks,
            end_for_sync,
            end_for_overdue,
            complete_segments,
        } = self;
        let [for_disk, for_records, for_overdue, for_filters] =
            [(); 4].map(|()| Arc::downgrade(storing));
        let called = Arc::new(Mutex::new(called));
        for _ in 0..storing.store.writers() {
            let for_output = Arc::downgrade(storing);
            let called = Arc::clone(&called);
            thread::Builder::new()
                .name("sshjobs-output".into())
                .spawn(move || write_output(&for_output, &called))?;
        }
        thread::Builder::new()
            .name("sshjobs-sync".into())
            .spawn(move || sync_output(&for_disk, &end_for_sync))?;
        thread::Builder::new()
            .name("sshjobs-overdue".into())
            .spawn(move || show_overdue_output(&for_overdue, &end_for_overdue))?;
        thread::Builder::new()
            .name("sshjobs-records".into())
            .spawn(move || keep_records(&for_records, &tasks))?;
        thread::Builder::new()
            .name("sshjobs-filters".into())
            .spawn(move || write_filters(&for_filters, &complete_segments))?;
        Ok(())
    }

    /// Handles one request to write output. Returns false if there is none.
    #[cfg(test)]
    pub(crate) fn store_next_output(&self, storing: &Storing) -> bool {
        let next = self.called.try_recv();
        if let Ok(job) = &next {
            storing.store_output(job);
        }
        next.is_ok()
    }

    /// Handles all requests about records, and writes those that changed.
    #[cfg(test)]
    pub(crate) fn keep_records_once(&self, storing: &Storing) {
        storing.do_tasks(self.tasks.try_iter());
        warn(storing.put_changed());
    }
}

fn write_output(storing: &Weak<Storing>, called: &Mutex<Receiver<JobId>>) {
    let mut rested = Instant::now();
    loop {
        // Locked while this thread waits: the others wait for the lock, and get the next calls.
        let call = lock(called).recv_timeout(ROUND);
        let Some(storing) = storing.upgrade() else { return };
        match call {
            Ok(id) => storing.store_output(&id),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if rested.elapsed() >= ROUND {
            storing.close_files_if_many();
            rested = Instant::now();
        }
    }
}

fn sync_output(storing: &Weak<Storing>, gone: &Receiver<()>) {
    while gone.recv_timeout(ROUND) == Err(RecvTimeoutError::Timeout) {
        let Some(storing) = storing.upgrade() else { return };
        storing.sync_all();
        storing.probe_if_due();
    }
}

fn show_overdue_output(storing: &Weak<Storing>, gone: &Receiver<()>) {
    while gone.recv_timeout(ROUND) == Err(RecvTimeoutError::Timeout) {
        let Some(storing) = storing.upgrade() else { return };
        storing.show_overdue_or_store_again();
    }
}

/// Writes filters of complete segments, once output has paused: they take half as much processor time as the
/// output itself. A search without filters is slower, and finds the same.
fn write_filters(storing: &Weak<Storing>, complete_segments: &Receiver<CompleteSegment>) {
    lower_priority();
    let mut waiting = VecDeque::new();
    loop {
        match complete_segments.recv_timeout(ROUND) {
            Ok(segment) if waiting.len() < MOST_TO_FILTER => {
                waiting.push_back((Instant::now(), segment));
            }
            Ok(_) | Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        while let Some((since, segment)) = waiting.front() {
            let Some(storing) = storing.upgrade().filter(|storing| !storing.is_gone.load(Relaxed))
            else {
                return;
            };
            let has_paused = lock(&storing.progress).elapsed() >= PAUSE;
            // Not held: it would live until the filters are written.
            drop(storing);
            if !has_paused && since.elapsed() < LONGEST_WAIT {
                break;
            }
            // Usually because it was deleted meanwhile.
            if let Err(error) = segment.write_filters() {
                tracing::debug!(%error, "the filters of a segment could not be written");
            }
            waiting.pop_front();
        }
    }
}

/// Lets other threads run before this one, so that no output waits for it.
fn lower_priority() {
    // Linux has a priority for each thread; elsewhere it is that of the process.
    #[cfg(target_os = "linux")]
    if let Err(error) = setpriority_process(Some(gettid()), LOWEST_PRIORITY) {
        tracing::debug!(%error, "the filters are written with the usual priority");
    }
}

fn keep_records(storing: &Weak<Storing>, asked: &Receiver<Task>) {
    // No sweep in the first seconds: short-lived processes leave it to others.
    let mut put = Instant::now();
    let mut sweep_at = Instant::now() + FIRST_SWEEP;
    loop {
        let task = asked.recv_timeout(ROUND.saturating_sub(put.elapsed()));
        let Some(storing) = storing.upgrade() else { return };
        match task {
            Ok(task) => {
                storing.do_tasks(std::iter::once(task).chain(asked.try_iter()).take(MOST_TASKS))
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
        if put.elapsed() >= ROUND {
            warn(storing.put_changed());
            put = Instant::now();
        }
        if Instant::now() >= sweep_at {
            storing.sweep();
            sweep_at = Instant::now() + SWEEP;
        }
    }
}
