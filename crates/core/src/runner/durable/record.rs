//! Follows and records durable jobs in tasks of the runner.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::controls::stdin;
use super::follow_host::follower_of;
use super::launch::StartedOnHost;
use crate::hosts::{HostRef, Link};
use crate::runner::record::{
    OutputCount, QueuedFarEnd, answer_queries, has_answering_terminal, record_queued_in_task,
};
use crate::runner::state::{Follower, RunnerState};
use sshjobs_job::{Backlog, FarEvent, Job, Positions};

/// Maximum events of a job that wait for its recorder.
const QUEUE: usize = 64;

/// Follows and records a durable job that was just started.
pub(crate) fn record_started(shared: &Arc<RunnerState>, job: &Arc<Job>, started: StartedOnHost) {
    let StartedOnHost {
        follower,
        link,
        session,
    } = started;
    follow_new(shared, job, &follower, session, Some(&link));
}

/// Follows and records a job that was just started: in `session`, if the host has added it to that one.
/// `link` is the connection over which it was started.
pub(crate) fn follow_new(
    shared: &Arc<RunnerState>,
    job: &Arc<Job>,
    follower: &Follower,
    session: Option<String>,
    link: Option<&Arc<Link>>,
) {
    let (events, receiver) = mpsc::channel(QUEUE);
    // The channel is empty, so there is room.
    events.try_send(FarEvent::Started).ok();
    record_in_task(shared, job, receiver, link);
    follower.follow(job, Positions::default(), events, session);
}

/// Follows and records a durable job whose process has ended, after these positions.
pub(crate) fn follow_again(shared: &Arc<RunnerState>, job: &Arc<Job>, positions: Positions) {
    let follower = follower_of(shared, &HostRef::of(job));
    let (events, receiver) = mpsc::channel(QUEUE);
    // Until the first session has caught up, `Job::caught_up` waits for output on the host.
    job.note_reach(false);
    record_in_task(shared, job, receiver, None);
    follower.follow(job, positions, events, None);
}

/// Records a job in a task. `link` is the connection over which it was started; `None` if another
/// process started it, so that the offset of its stdin is unknown.
fn record_in_task(
    shared: &Arc<RunnerState>,
    job: &Arc<Job>,
    events: mpsc::Receiver<FarEvent>,
    link: Option<&Arc<Link>>,
) {
    let stdin = stdin(shared, job, link.map(|_| 0));
    shared.note_begin(job, Arc::clone(&stdin), link);
    if has_answering_terminal(job) {
        shared.spawn_task(answer_queries(shared, Arc::clone(job), stdin));
    }
    record_queued_in_task(
        shared,
        job,
        QueuedFarEnd::new(events, Backlog::IsKeptByHost).counted(OutputCount {
            growth: Arc::clone(&shared.growth),
            unseen: shared.limits.unseen_growth(),
        }),
    );
}
