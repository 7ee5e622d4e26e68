//! Step 4 for an attached job: a task of the runner records the events of its channel.

use std::sync::Arc;
use std::time::Duration;

use super::send_command::SentCommand;
use crate::hosts::{HostRef, Link};
use crate::runner::record::{
    Attached, AttachedControls, RecordingTask, answer_queries, has_answering_terminal, record,
};
use crate::runner::state::{JobStdin, Meter, RunnerState};
use sshjobs_job::{Announcements, Job, Pace, Phase, Recorder};

/// Running time of a job after which a control shell is started for it.
const LASTING: Duration = Duration::from_secs(1);

/// Leaves a job to a recording task. From here on the job belongs to the runner, and not to its
/// caller.
pub(super) fn record_in_task(shared: &Arc<RunnerState>, job: &Arc<Job>, sent: SentCommand) {
    let SentCommand {
        lease,
        plan,
        reader,
        writer,
        first_events,
    } = sent;
    let link = Arc::clone(lease.connection());
    // `record` calls `job_ends` for it.
    link.job_begins();

    let announcements = Announcements::new(&job.mark, plan.announcements);
    let announcements = if plan.repeats_noise {
        announcements.without_noise()
    } else {
        announcements
    };
    let recorder = Recorder::new(announcements, shared.limits.drain);
    let far_end = Attached {
        reader,
        ahead: first_events,
        meter: meter(shared, job, &link),
    };
    let recording = RecordingTask::new(far_end, Arc::clone(job), recorder);

    let stdin = Arc::new(JobStdin::new(
        Arc::new(AttachedControls(writer)),
        Arc::clone(job),
        recording.announced(),
        plan.stdin_header,
    ));
    // Before the recording task, which removes the stdin at the end of a very short job.
    shared.note_begin(job, Arc::clone(&stdin), Some(&link));

    if has_answering_terminal(job) {
        let stdin = Arc::clone(&stdin);
        shared.spawn_task(answer_queries(shared, Arc::clone(job), stdin));
    }
    if is_on_shared_connection(job) {
        shared.spawn_task(start_control_shell(Arc::clone(job), Arc::clone(&link)));
        // Opens the spare channel for the next job, in place of the one that this job may have
        // taken.
        shared.spawn_task(async move { link.refill().await });
    }
    shared.spawn_task(record(Arc::clone(shared), recording, stdin, lease));
}

fn meter(shared: &RunnerState, job: &Job, link: &Link) -> Meter {
    Meter {
        traffic: link.traffic.clone(),
        growth: Arc::clone(&shared.growth),
        host: HostRef::of(job),
        became_heavy: is_on_shared_connection(job).then(|| shared.became_heavy.clone()),
        unseen: shared.limits.unseen_growth(),
    }
}

/// A job that its follower may pause has a connection to itself.
fn is_on_shared_connection(job: &Job) -> bool {
    job.spec.pace == Pace::Free
}

/// Starts the connection's control shell in the background once a job has run for a while: it may
/// be signalled or prompt for input. A short job costs one login shell, as with ssh.
async fn start_control_shell(job: Arc<Job>, link: Arc<Link>) {
    let has_ended = job.wait_for(LASTING, |log| matches!(log.phase(), Phase::Ended(_))).await;
    if !matches!(has_ended.phase, Phase::Ended(_)) {
        link.start_control_shell().await;
    }
}
