use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::link::Directory;
use super::spawn::Shared;
use crate::job::Job;

const PERIOD: Duration = Duration::from_secs(1);

/// Keeps the runner within its bounds: lets finished jobs, output and idle connections go when their time has come.
pub(super) async fn sweep<D: Directory>(shared: Arc<Shared<D>>) {
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
        for lease in shared.pool.expire() {
            lease.connection().connection.disconnect().await;
        }
    }
}

fn expire_finished<D: Directory>(shared: &Shared<D>) {
    let mut registry = shared.registry();
    registry.clear_graves();
    let finished: Vec<Arc<Job>> = registry.finished().cloned().collect();
    let excess = finished.len().saturating_sub(shared.limits.max_finished);
    let keep = Duration::from_secs(shared.limits.keep_finished_s);
    for (index, job) in finished.iter().enumerate() {
        if index < excess || job.ended_for().is_some_and(|ended_for| ended_for >= keep) {
            registry.bury(&job.id);
        }
    }
}

/// Output over the total bound goes: that of finished jobs first, the oldest first; then the oldest lines of the jobs
/// that hold most.
fn bound_output<D: Directory>(shared: &Shared<D>) {
    let (finished, mut running): (Vec<_>, Vec<_>) = {
        let registry = shared.registry();
        (registry.finished().cloned().collect(), registry.running().cloned().collect())
    };
    let footprint = |job: &Arc<Job>| job.read_log(|log| log.ring().footprint());
    let total: usize = finished.iter().chain(&running).map(footprint).sum();
    let mut excess = total.saturating_sub(shared.limits.buffered_bytes_total);
    running.sort_by_key(|job| std::cmp::Reverse(footprint(job)));
    for (job, keep) in finished.iter().map(|job| (job, 0)).chain(running.iter().map(|job| (job, 2))) {
        if excess == 0 {
            return;
        }
        let before = footprint(job);
        let kept = before.checked_div(keep).unwrap_or(0);
        job.write_log(|log| log.ring_mut().trim(kept));
        excess = excess.saturating_sub(before - footprint(job).min(before));
    }
}
