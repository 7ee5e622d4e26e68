use std::sync::Arc;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use super::shared::Shared;
use crate::hosts::HostRef;
use crate::job::Job;

const PERIOD: Duration = Duration::from_secs(1);
/// Maximum times per sweep that the largest job's output is halved to meet the total limit.
const MOST_HALVINGS: usize = 64;

/// Keeps the runner within its bounds: lets finished jobs, output and idle connections go when their time has come.
pub(super) async fn sweep(shared: Arc<Shared>) {
    let mut tick = interval(PERIOD);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut growth = shared.growth.watch();
    loop {
        tokio::select! {
            _ = tick.tick() => {}
            // The runner owns the sender.
            _ = growth.changed() => {
                bound_output(&shared);
                continue;
            }
        }
        expire_finished(&shared);
        bound_output(&shared);
        shared.elsewhere.expire();
        shared.hosts.expire().await;
    }
}

/// Makes a light connection to each host whose connection has become heavy, so that the next job need not wait for one.
pub(super) async fn connect_ahead(shared: Arc<Shared>, mut heavy: mpsc::Receiver<HostRef>) {
    while let Some(host) = heavy.recv().await {
        if let Err(error) = shared.hosts.pool().lease(&host).await {
            tracing::debug!(%host, %error, "no connection could be made ahead");
        }
    }
}

fn expire_finished(shared: &Shared) {
    let mut registry = shared.registry();
    registry.clear_graves();
    let finished: Vec<Arc<Job>> = registry.finished().cloned().collect();
    let excess = finished.len().saturating_sub(shared.limits.max_finished);
    let keep = Duration::from_secs(shared.limits.keep_finished_s);
    for (index, job) in finished.iter().enumerate() {
        if index < excess || job.ended_for().is_some_and(|ended_for| ended_for >= keep) {
            let is_stored = shared.storing.as_ref().is_some_and(|storing| storing.has_all_of(job));
            if !is_stored || !registry.let_go(&job.id) {
                registry.bury(&job.id);
            }
        }
    }
}

fn bound_output(shared: &Shared) {
    let (finished, running): (Vec<_>, Vec<_>) = {
        let registry = shared.registry();
        (registry.finished().cloned().collect(), registry.running().cloned().collect())
    };
    trim(&finished, &running, shared.limits.buffered_bytes_total);
}

/// Output over the bound goes: that of finished jobs first, the oldest first; then the oldest lines of the jobs that hold
/// most.
fn trim(finished: &[Arc<Job>], running: &[Arc<Job>], bound: usize) {
    let footprint = |job: &Arc<Job>| job.read_log(|log| log.ring().footprint());
    let total = || finished.iter().chain(running).map(footprint).sum::<usize>();
    let mut excess = total().saturating_sub(bound);
    for job in finished {
        if excess == 0 {
            return;
        }
        let before = footprint(job);
        job.trim(0);
        excess = excess.saturating_sub(before.saturating_sub(footprint(job)));
    }
    for _ in 0..MOST_HALVINGS {
        let Some(largest) = running.iter().max_by_key(|job| footprint(job)).filter(|_| excess > 0) else {
            return;
        };
        largest.trim(footprint(largest) / 2);
        excess = total().saturating_sub(bound);
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;
    use crate::job::{Caller, Change, Draft};
    use crate::output::{RingLimits, Stream};

    /// A job that holds so many lines of about 100 bytes.
    fn job(lines: usize) -> Arc<Job> {
        let spec = Draft::new("web1", "make").try_into().unwrap();
        let job = Job::new(Caller::local(), spec, RingLimits::default());
        let text = format!("{}\n", "x".repeat(99)).repeat(lines);
        let job = Arc::new(job);
        job.record(vec![Change::Append(Stream::Stdout, text.into())], Instant::now());
        job
    }

    fn kept(job: &Job) -> usize {
        job.read_log(|log| log.ring().line_count())
    }

    #[tokio::test]
    async fn finished_output_gives_way_first_and_the_oldest_of_it_before_that() {
        let (oldest, newer, running) = (job(1000), job(1000), job(1000));
        let of_two = 2 * newer.read_log(|log| log.ring().footprint());
        trim(&[Arc::clone(&oldest), Arc::clone(&newer)], &[Arc::clone(&running)], of_two + 10_000);
        assert_eq!((kept(&oldest), kept(&newer), kept(&running)), (0, 1000, 1000));
    }

    #[tokio::test]
    async fn then_the_oldest_lines_go_of_the_job_that_holds_most() {
        let (small, large) = (job(100), job(5000));
        trim(&[], &[Arc::clone(&small), Arc::clone(&large)], 300_000);
        assert_eq!(kept(&small), 100);
        assert!((1..5000).contains(&kept(&large)), "{}", kept(&large));
        let last = large.read_log(|log| log.ring().newest().value());
        assert_eq!(large.status().first_available.value() + kept(&large) as u64, last + 1);
    }

    #[tokio::test]
    async fn what_is_within_the_bound_stays() {
        let (finished, running) = (job(10), job(10));
        trim(&[Arc::clone(&finished)], &[Arc::clone(&running)], 1 << 20);
        assert_eq!((kept(&finished), kept(&running)), (10, 10));
    }
}
