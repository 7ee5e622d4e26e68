//! Screens of terminal jobs, kept while they are asked for, within limits of number and memory.
//!
//! Callers take turns on a screen: each draws the output since the last call, then looks. No task
//! draws ahead, so a screen that nobody asks for costs nothing. The exception is a terminal that
//! answers queries (`runner/record/answer_queries.rs`).

use std::collections::HashMap;
use std::sync::{Arc, Mutex as StdMutex};
use std::time::Duration;

use tokio::sync::{Mutex, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use sshjobs_base::lock::lock;
use sshjobs_job::{Job, JobId, JobScreen};

/// Maximum screens that are kept.
const MOST_SCREENS: usize = 64;
/// Maximum total character cells of the kept screens, about 50 MiB of memory.
const MOST_CELLS: usize = 1_600_000;
/// Maximum terminals that answer queries at the same time, and the largest of them in characters:
/// their screens are always in use, and never dropped.
const MOST_ANSWERING: usize = 64;
const LARGEST_ANSWERING: usize = 20_000;
/// A screen that was not asked for during this time is dropped.
const KEEP: Duration = Duration::from_secs(600);

/// Screens of jobs, kept while they are asked for.
#[derive(Default)]
pub(crate) struct Screens {
    kept: StdMutex<HashMap<JobId, CachedScreen>>,
    answering: Answering,
}

/// Limits the terminals that answer queries.
struct Answering(Arc<Semaphore>);

impl Default for Answering {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MOST_ANSWERING)))
    }
}

struct CachedScreen {
    screen: Arc<Mutex<JobScreen>>,
    cells: usize,
    asked: Instant,
}

impl Screens {
    /// The screen of a job, not yet drawn to the end of its output.
    pub(crate) fn of(&self, job: &Job) -> Arc<Mutex<JobScreen>> {
        let mut kept = lock(&self.kept);
        let entry = kept.entry(job.id.clone()).or_insert_with(|| CachedScreen {
            screen: Arc::new(Mutex::new(JobScreen::new(job))),
            cells: 0,
            asked: Instant::now(),
        });
        entry.asked = Instant::now();
        entry.cells = cells(job);
        let screen = Arc::clone(&entry.screen);
        bound(&mut kept);
        screen
    }

    /// Permission to keep a screen in use for a terminal that answers queries. `None` if the terminal
    /// is too large, or too many answer already.
    pub(crate) fn may_answer(&self, job: &Job) -> Option<OwnedSemaphorePermit> {
        // Half, because the cells are those of two screens.
        if cells(job) / 2 > LARGEST_ANSWERING {
            return None;
        }
        Arc::clone(&self.answering.0).try_acquire_owned().ok()
    }

    /// Drops the screens that nobody has asked for lately.
    pub(crate) fn expire(&self) {
        lock(&self.kept)
            .retain(|_, kept| kept.asked.elapsed() < KEEP || Arc::strong_count(&kept.screen) > 1);
    }
}

/// Character cells of a job's terminal, at its current size.
fn cells(job: &Job) -> usize {
    let first = job.spec.terminal.as_ref().map(sshjobs_job::Terminal::size);
    let size = job.resizes().last().map(|resize| resize.size).or(first);
    size.map_or(0, |size| {
        // Both the normal and the alternate screen.
        2 * size.cols as usize * size.rows as usize
    })
}

/// Drops the screens that were asked for least recently until the limits are met. A screen in use is
/// kept, and is dropped by a later call.
fn bound(kept: &mut HashMap<JobId, CachedScreen>) {
    loop {
        let cells: usize = kept.values().map(|kept| kept.cells).sum();
        if kept.len() <= MOST_SCREENS && cells <= MOST_CELLS {
            return;
        }
        let unused = kept.iter().filter(|(_, kept)| Arc::strong_count(&kept.screen) == 1);
        let oldest = unused.min_by_key(|(_, kept)| kept.asked).map(|(id, _)| id.clone());
        let Some(oldest) = oldest else { return };
        kept.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sshjobs_job::{Caller, Draft, Terminal};
    use sshjobs_output::RingLimits;

    fn job(cols: i64, rows: i64) -> Job {
        let mut draft = Draft::new("web1", "top");
        draft.terminal = Some(Terminal::new("xterm", cols, rows).unwrap());
        Job::new(
            Caller::local(),
            draft.try_into().unwrap(),
            RingLimits::default(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn screens_are_bounded_in_number_and_the_oldest_goes_first() {
        let screens = Screens::default();
        let jobs: Vec<Job> = (0..MOST_SCREENS + 3).map(|_| job(80, 24)).collect();
        for job in &jobs {
            screens.of(job);
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let kept = lock(&screens.kept);
        assert_eq!(kept.len(), MOST_SCREENS);
        assert!(!kept.contains_key(&jobs[0].id) && kept.contains_key(&jobs[3].id));
    }

    #[tokio::test]
    async fn screens_are_bounded_in_memory() {
        let screens = Screens::default();
        for _ in 0..5 {
            screens.of(&job(1000, 700));
        }
        assert_eq!(lock(&screens.kept).len(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn a_screen_that_nobody_asks_for_is_dropped_unless_it_is_in_use() {
        let screens = Screens::default();
        let unused = job(80, 24);
        let used = job(80, 24);
        screens.of(&unused);
        let _in_use = screens.of(&used);
        tokio::time::advance(KEEP).await;
        screens.expire();
        let kept = lock(&screens.kept);
        assert!(!kept.contains_key(&unused.id) && kept.contains_key(&used.id));
    }
}
