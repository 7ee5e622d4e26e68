//! Enforces limits once a second and whenever output has grown: finished jobs, buffered output,
//! idle connections.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::hosts::HostRef;
use crate::job::Job;
use crate::runner::state::Shared;

const PERIOD: Duration = Duration::from_secs(1);
/// Time after its end for which a job's newest output stays in memory, although it is stored. Most
/// readers come within it.
const KEPT_IN_MEMORY: Duration = Duration::from_secs(30);
/// Maximum times per sweep that the largest job's output is halved to meet the total limit.
const MOST_HALVINGS: usize = 64;

/// Enforces the runner's limits: evicts finished jobs, output and idle connections.
pub(crate) async fn sweep(shared: Arc<Shared>) {
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
pub(crate) async fn connect_ahead(shared: Arc<Shared>, mut heavy: mpsc::Receiver<HostRef>) {
    while let Some(host) = heavy.recv().await {
        // The lease is dropped at once. Its connection stays in the pool for the next job.
        if let Err(error) = shared.hosts.pool().lease(&host).await {
            tracing::debug!(%host, %error, "could not make an additional connection in advance");
        }
    }
}

fn expire_finished(shared: &Shared) {
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

fn release_stored_output(shared: &Shared) {
    let Some(storing) = &shared.storing else { return };
    let finished: Vec<Arc<Job>> = shared.registry().finished().cloned().collect();
    release(&finished, |job| storing.has_all_of(job));
}

/// Frees the output of jobs that ended a while ago and that the store has. Later readers get it from
/// there.
fn release(finished: &[Arc<Job>], is_stored: impl Fn(&Job) -> bool) {
    for job in finished {
        let is_old = job.ended_for().is_some_and(|ended_for| ended_for >= KEPT_IN_MEMORY);
        if is_old && footprint(job) > 0 && is_stored(job) {
            job.trim(0);
        }
    }
}

fn bound_output(shared: &Shared) {
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
    use crate::job::{Caller, Change, Draft, Exit, Outcome};
    use crate::output::{RingLimits, Stream};

    /// A job with this many lines of about 100 bytes.
    fn job(lines: usize) -> Arc<Job> {
        let spec = Draft::new("web1", "make").try_into().unwrap();
        let job = Job::new(Caller::local(), spec, RingLimits::default());
        let text = format!("{}\n", "x".repeat(99)).repeat(lines);
        let job = Arc::new(job);
        job.record(
            vec![Change::Append(Stream::Stdout.into(), text.into())],
            Instant::now(),
        );
        job
    }

    fn kept(job: &Job) -> usize {
        job.read_log(|log| log.ring().line_count())
    }

    #[tokio::test(start_paused = true)]
    async fn output_that_is_stored_leaves_memory_a_while_after_the_end() {
        let [stored, unstored, running] = [job(1000), job(1000), job(1000)];
        for job in [&stored, &unstored] {
            job.end(Outcome::Ended(Exit::Status(0)));
        }
        let jobs = [&stored, &unstored, &running].map(Arc::clone);
        let is_stored = |job: &Job| job.id != unstored.id;

        release(&jobs, is_stored);
        assert_eq!(
            jobs.each_ref().map(|job| kept(job)),
            [1000; 3],
            "readers may still come"
        );
        tokio::time::sleep(KEPT_IN_MEMORY).await;
        release(&jobs, is_stored);
        assert_eq!(jobs.each_ref().map(|job| kept(job)), [0, 1000, 1000]);
        assert_eq!(footprint(&stored), 0);
        assert_eq!(
            stored.status().total_lines,
            1000,
            "its lines keep their numbers"
        );
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
