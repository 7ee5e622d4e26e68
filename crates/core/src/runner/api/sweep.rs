//! Enforces limits once a second and whenever output has grown: finished jobs, buffered output,
//! idle connections. Frees output that the store has, and shows output that a scrubber has held back for a second, too.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::hosts::HostRef;
use crate::keeping::Storing;
use crate::runner::state::RunnerState;
use sshjobs_job::Job;

const PERIOD: Duration = Duration::from_secs(1);
/// Time for which all output of a finished job that fits into its ring stays in memory. Most reads come
/// in this time.
const KEPT_IN_MEMORY: Duration = Duration::from_secs(30);
/// Bytes of output that stay in memory after that: more than most calls return of a job's last lines.
const KEPT_TAIL: usize = 128 << 10;
/// Maximum times per sweep that the largest job's output is halved to meet the total limit.
const MOST_HALVINGS: usize = 64;

/// Enforces the runner's limits: evicts finished jobs, output and idle connections.
pub(crate) async fn sweep(shared: Arc<RunnerState>) {
    let mut tick = interval(PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut growth = shared.growth.watch();
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            // The runner owns the sender, so this never fails.
            _ = growth.changed() => {
                bound_output(&shared);
                continue;
            }
        }
        release_held_output(&shared);
        expire_finished(&shared);
        release_stored_output(&shared);
        bound_output(&shared);
        shared.foreign_jobs.expire();
        shared.screens.expire();
        shared.hosts.expire().await;
    }
}

/// Makes another connection to each host whose connection has become heavy, so that the next job
/// need not wait for one.
pub(crate) async fn connect_ahead(shared: Arc<RunnerState>, mut heavy: mpsc::Receiver<HostRef>) {
    while let Some(host) = heavy.recv().await {
        // The lease is dropped at once. Its connection stays in the pool for the next job.
        if let Err(error) = shared.hosts.pool().lease(&host).await {
            tracing::debug!(%host, %error, "could not make an additional connection in advance");
        }
    }
}

/// Shows output that was held back because it may be the start of a secret.
fn release_held_output(shared: &RunnerState) {
    let recorded: Vec<Arc<Job>> = shared.registry().recorded().cloned().collect();
    let now = Instant::now();
    recorded.iter().for_each(|job| job.release_held_output(now));
}

fn expire_finished(shared: &RunnerState) {
    let mut registry = shared.registry();
    registry.clear_graves();
    let finished: Vec<Arc<Job>> = registry.finished().cloned().collect();
    let excess = finished.len().saturating_sub(shared.limits.max_finished);
    let keep = shared.limits.keep_finished;
    for (index, job) in finished.iter().enumerate() {
        if index < excess || job.ended_for().is_some_and(|ended_for| ended_for >= keep) {
            let is_stored = shared.storing.as_ref().is_some_and(|storing| storing.has_all_of(job));
            // A stored job needs no tombstone: later lookups find it in the store.
            if !is_stored || !registry.evict_stored(&job.id) {
                registry.bury(&job.id);
            }
        }
    }
}

fn release_stored_output(shared: &RunnerState) {
    let Some(storing) = &shared.storing else { return };
    let finished: Vec<Arc<Job>> = shared.registry().finished().cloned().collect();
    release(&finished, storing);
}

/// Frees all but the tail of output that ended a while ago and that the store has, too. Later readers
/// get the rest from the store.
fn release(finished: &[Arc<Job>], storing: &Storing) {
    for job in finished {
        let is_old = job.ended_for().is_some_and(|ended_for| ended_for >= KEPT_IN_MEMORY);
        let is_long = job.read_log(|log| log.ring().byte_count() > KEPT_TAIL);
        if is_old && is_long && storing.has_all_of(job) && job.has_ring_in_store() {
            job.trim(KEPT_TAIL);
        }
    }
}

fn bound_output(shared: &RunnerState) {
    // Copied, so that the registry is free while the logs are measured and trimmed.
    let (finished, running): (Vec<_>, Vec<_>) = {
        let registry = shared.registry();
        (
            registry.finished().cloned().collect(),
            registry.running().cloned().collect(),
        )
    };
    trim(&finished, &running, shared.limits.buffered_bytes_total);
}

/// Evicts output over the limit: first that of finished jobs, oldest first, then the oldest lines
/// of the largest jobs.
fn trim(finished: &[Arc<Job>], running: &[Arc<Job>], bound: usize) {
    let mut excess = footprints(finished, running).saturating_sub(bound);
    for job in finished {
        if excess == 0 {
            return;
        }
        let before = footprint(job);
        job.trim(0);
        excess = excess.saturating_sub(before.saturating_sub(footprint(job)));
    }
    for _ in 0..MOST_HALVINGS {
        if excess == 0 {
            return;
        }
        let Some(largest) = running.iter().max_by_key(|job| footprint(job)) else {
            return;
        };
        largest.trim(footprint(largest) / 2);
        excess = footprints(finished, running).saturating_sub(bound);
    }
}

fn footprints(finished: &[Arc<Job>], running: &[Arc<Job>]) -> usize {
    finished.iter().chain(running).map(footprint).sum()
}

/// Bytes of memory used by a job's output.
fn footprint(job: &Arc<Job>) -> usize {
    job.read_log(|log| log.ring().footprint())
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use sshjobs_job::{Caller, Draft, Exit, LogChange, Outcome};
    use sshjobs_output::{RingLimits, Stream};
    use sshjobs_store::{DiskFault, LogLimits, Memory, Record, StoreLimits};

    /// A job with this many lines of about 100 bytes.
    fn job(lines: usize) -> Arc<Job> {
        let spec = Draft::new("web1", "make").try_into().unwrap();
        let job = Job::new(Caller::local(), spec, RingLimits::default());
        let text = format!("{}\n", "x".repeat(99)).repeat(lines);
        let job = Arc::new(job);
        job.record(
            vec![LogChange::Append(Stream::Stdout.into(), text.into())],
            Instant::now(),
        );
        job
    }

    fn kept(job: &Job) -> usize {
        job.read_log(|log| log.ring().line_count())
    }

    /// A job that printed 20,000 lines of about 100 bytes and ended, with what stores it.
    fn stored_job(fault: &Arc<DiskFault>) -> (Arc<Storing>, Arc<Job>) {
        let limits = LogLimits {
            bytes: 64 << 20,
            line_bytes: 1 << 16,
            interval: 1 << 16,
        };
        let bounds = StoreLimits {
            bytes: u64::MAX,
            age: u64::MAX,
        };
        let store = Arc::new(Memory::with_fault(Arc::clone(fault)));
        let (storing, requests) = Storing::new(store, limits, bounds);
        let spec = Draft::new("web1", "make").try_into().unwrap();
        let ring = RingLimits {
            lines: 1 << 20,
            ..RingLimits::default()
        };
        let job = Arc::new(Job::new(Caller::local(), spec, ring));
        let record = Record::new(&job, None, String::new());
        storing.store.admit(&record).unwrap();
        storing.keep(&job, record, None);
        let text = format!("{}\n", "x".repeat(99)).repeat(1000);
        for _ in 0..20 {
            let change = LogChange::Append(Stream::Stdout.into(), text.clone().into());
            job.record(vec![change], Instant::now());
            while requests.store_next_output(&storing) {}
        }
        job.end(Outcome::Ended(Exit::Status(0)));
        while requests.store_next_output(&storing) {}
        requests.keep_records_once(&storing);
        (storing, job)
    }

    #[tokio::test(start_paused = true)]
    async fn stored_output_leaves_memory_a_while_after_the_end_but_for_its_tail() {
        let (storing, job) = stored_job(&Arc::default());
        release(&[Arc::clone(&job)], &storing);
        assert_eq!(kept(&job), 20_000, "readers may still come");

        tokio::time::sleep(KEPT_IN_MEMORY).await;
        release(&[Arc::clone(&job)], &storing);
        assert_eq!(kept(&job), KEPT_TAIL / 100);
        assert!(footprint(&job) < 2 * KEPT_TAIL);
        let page = job.last_page(500, 256 << 10);
        assert_eq!(page.lines.len(), 500);
        assert_eq!(job.status().dropped_lines, 0, "the store has the others");
    }

    #[tokio::test(start_paused = true)]
    async fn output_that_the_store_lacks_stays_in_memory() {
        let fault = Arc::new(DiskFault::default());
        fault.fail_next_append_after(10);
        let (storing, job) = stored_job(&fault);
        assert_eq!(job.status().unstored, None, "later output was stored");
        tokio::time::sleep(KEPT_IN_MEMORY).await;
        release(&[Arc::clone(&job)], &storing);
        assert_eq!(kept(&job), 20_000);
    }

    #[tokio::test]
    async fn finished_output_gives_way_first_and_the_oldest_of_it_before_that() {
        let oldest = job(1000);
        let newer = job(1000);
        let running = job(1000);
        let of_two = 2 * newer.read_log(|log| log.ring().footprint());
        trim(
            &[Arc::clone(&oldest), Arc::clone(&newer)],
            &[Arc::clone(&running)],
            of_two + 10_000,
        );
        assert_eq!(
            (kept(&oldest), kept(&newer), kept(&running)),
            (0, 1000, 1000)
        );
    }

    #[tokio::test]
    async fn then_the_oldest_lines_go_of_the_job_that_holds_most() {
        let small = job(100);
        let large = job(5000);
        trim(&[], &[Arc::clone(&small), Arc::clone(&large)], 300_000);
        assert_eq!(kept(&small), 100);
        assert!((1..5000).contains(&kept(&large)), "{}", kept(&large));
        let last = large.read_log(|log| log.ring().newest().value());
        assert_eq!(
            large.status().first_available.value() + kept(&large) as u64,
            last + 1
        );
    }

    #[tokio::test]
    async fn what_is_within_the_bound_stays() {
        let finished = job(10);
        let running = job(10);
        trim(&[Arc::clone(&finished)], &[Arc::clone(&running)], 1 << 20);
        assert_eq!((kept(&finished), kept(&running)), (10, 10));
    }
}
