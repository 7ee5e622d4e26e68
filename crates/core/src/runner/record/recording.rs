//! The recording task of a job: it applies the recorder's changes, enforces the time limit, and
//! cleans up at the end.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use crate::hosts::{Asking, Lease, Link};
use crate::runner::signal::{SignalReport, end_tree};
use crate::runner::state::{JobStdin, RunnerState};
use sshjobs_job::{End, FarEnd, FarEvent, Job, Kill, Outcome, Recorded, Recorder, Signal};
use sshjobs_ssh::SERVER_CLOSES;

/// Time for the end of a job to be stored and shown.
const END_SHOWN: Duration = Duration::from_secs(2);
/// Interval of keepalives while output is held back. The minimum of sshd's ClientAliveInterval is
/// one second.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);
/// Time for which recording works before it yields to other tasks of its thread.
const TURN: Duration = Duration::from_micros(500);
/// After its processes were killed: time limit for the server to report the end of the job.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The only writer of a job's log. Takes events from the far end and applies the changes that the
/// recorder returns. Never waits for a reader of the log.
pub(crate) struct RecordingTask<F> {
    far_end: F,
    job: Arc<Job>,
    recorder: Recorder,
    /// Number of process group announcements so far.
    announced: watch::Sender<u32>,
    /// The far end will send nothing more.
    is_closed: bool,
}

impl<F: FarEnd> RecordingTask<F> {
    pub(crate) fn new(far_end: F, job: Arc<Job>, recorder: Recorder) -> Self {
        Self {
            far_end,
            job,
            recorder,
            announced: watch::Sender::new(0),
            is_closed: false,
        }
    }

    /// Number of process group announcements so far.
    pub(crate) fn announced(&self) -> watch::Receiver<u32> {
        self.announced.subscribe()
    }

    /// Records until the job has ended or is detached. Cancel safe: a later call resumes.
    async fn run(&mut self) -> End {
        // Time spent on recording since it yielded.
        let mut worked = Duration::ZERO;
        loop {
            let next = self.next().await;
            let now = Instant::now();
            let recorded = match next {
                Next::Event(event) => {
                    self.is_closed = event.is_last();
                    self.recorder.take(event, now)
                }
                Next::Drained => self.recorder.drained(),
                Next::WasHeld => {
                    self.recorder.was_held(now);
                    continue;
                }
            };
            if let Some(end) = self.apply(recorded, now) {
                return end;
            }
            // tokio's budget counts events, not time, and an event of short lines takes ten times as long as one of
            // long lines.
            worked += now.elapsed();
            if worked >= TURN {
                worked = Duration::ZERO;
                tokio::task::yield_now().await;
            }
        }
    }

    async fn next(&mut self) -> Next {
        if self.job.wait_for_store(self.far_end.backlog()).await {
            return Next::WasHeld;
        }
        let Some(drained_at) = self.recorder.drain_ends_at() else {
            return Next::Event(self.far_end.next().await);
        };
        if !self.job.is_held() {
            return tokio::select! {
                // The event first: output that has arrived is recorded even if
                // the drain time is over.
                biased;
                event = self.far_end.next() => Next::Event(event),
                () = sleep_until(drained_at) => Next::Drained,
            };
        }
        tokio::select! {
            biased;
            event = self.far_end.next() => {
                self.recorder.was_held(Instant::now());
                Next::Event(event)
            }
            () = self.job.wait_for_room() => Next::WasHeld,
        }
    }

    fn apply(&self, Recorded { changes, end }: Recorded, now: Instant) -> Option<End> {
        self.job.record(changes, now);
        let announced = self.recorder.announced();
        self.announced
            .send_if_modified(|known| std::mem::replace(known, announced) != announced);
        end
    }

    /// After the end: discards events until the far end is closed, so that it can't block other
    /// channels on its connection.
    async fn drop_until_closed(&mut self) {
        while !self.is_closed {
            self.is_closed = self.far_end.next().await.is_last();
        }
    }
}

/// The next event to record.
enum Next {
    Event(FarEvent),
    /// The command has exited, and the drain is over.
    Drained,
    /// The far end was held back until now.
    WasHeld,
}

/// Records a job from its start to its end, then cleans up.
pub(crate) async fn record<F: FarEnd>(
    shared: Arc<RunnerState>,
    mut recording: RecordingTask<F>,
    stdin: Arc<JobStdin>,
    lease: Lease<Arc<Link>>,
) {
    let job = Arc::clone(&recording.job);
    let end = {
        let feeding = async {
            if let Err(error) = stdin.begin().await {
                tracing::debug!(job = %job.id, %error, "stdin ended early");
            }
            std::future::pending().await
        };
        tokio::select! {
            biased;
            // First: the far end of a job whose follower is behind must stop before more is recorded. The last branch
            // gets its turn when recording yields.
            never = hold_back(&job, lease.connection()) => never,
            end = record_within_limit(&shared, &mut recording, &stdin) => end,
            never = feeding => never,
        }
    };
    // `hold_back` may have been dropped while it held the connection.
    lease.connection().connection.hold(false);
    let finishing = async {
        match end {
            End::Outcome(outcome) => {
                tracing::info!(job = %job.id, ?outcome, "job ended");
                finish(&shared, &job, &outcome).await;
            }
            End::Detached => {
                tracing::info!(job = %job.id, "job detached");
                shared.registry().detach(&job);
            }
        }
    };
    let closing = async {
        // The server closes the channel by itself, unless processes in the background keep it open.
        drop(timeout(SERVER_CLOSES, recording.drop_until_closed()).await);
        // A lost connection needs no closing.
        stdin.controls().close().await.ok();
    };
    // Together: output of processes in the background would block the connection's other channels.
    tokio::join!(finishing, closing);
    drop(recording);
    let link = Arc::clone(lease.connection());
    // First, so that the slot is free while `job_ends` keeps the spare channel for some seconds.
    drop(lease);
    link.job_ends().await;
}

/// Records a durable job or a fleet while this process follows it.
pub(super) async fn record_queued<F: FarEnd>(
    shared: Arc<RunnerState>,
    mut recording: RecordingTask<F>,
) {
    let job = Arc::clone(&recording.job);
    match recording.run().await {
        End::Outcome(outcome) => {
            tracing::info!(job = %job.id, ?outcome, "job ended");
            finish(&shared, &job, &outcome).await;
        }
        End::Detached => shared.registry().detach(&job),
    }
}

/// Ends a job. Its end is stored and shown first, if that takes no longer than [`END_SHOWN`]: a full disk must not hold
/// the rest up.
pub(crate) async fn finish(shared: &Arc<RunnerState>, job: &Job, outcome: &Outcome) {
    job.end(outcome.clone());
    job.over_within(END_SHOWN).await;
    shared.finish(job, outcome);
}

/// Pauses the far end while the job's follower is behind. Such a job has a connection of its own.
async fn hold_back(job: &Job, link: &Link) -> ! {
    loop {
        job.wait_until_ahead().await;
        link.connection.hold(true);
        // A server that sends keepalives (ClientAliveInterval) gets no answers meanwhile, so we
        // send ours.
        while timeout(SIGN_OF_LIFE, job.wait_for_room()).await.is_err() {
            link.connection.show_life().await;
        }
        link.connection.hold(false);
    }
}

async fn record_within_limit<F: FarEnd>(
    shared: &RunnerState,
    recording: &mut RecordingTask<F>,
    stdin: &JobStdin,
) -> End {
    let job = Arc::clone(&recording.job);
    let Some(limit) = job.spec.timeout else { return recording.run().await };
    if let Ok(end) = timeout(limit, recording.run()).await {
        return end;
    }
    if recording.recorder.exit().is_some() {
        // The command has exited in time. Its background processes have no limit.
        return recording.run().await;
    }
    tracing::info!(job = %job.id, ?limit, "time limit reached");
    let grace = shared.limits.kill_grace;
    let ending = async {
        let kill = Kill::new(Signal::TERM, Some(grace));
        match end_tree(shared, &job, kill, stdin.controls(), Asking::Nobody).await {
            // Only output in flight can still arrive, and there is room for that.
            Ok(SignalReport {
                confirmed_dead: true,
                ..
            }) => job.stop_pacing(),
            Ok(SignalReport {
                unverified: Some(why),
                ..
            }) => tracing::warn!(
                job = %job.id,
                "the job reached its time limit, and its processes may still run: {why}"
            ),
            Ok(_) => tracing::warn!(
                job = %job.id,
                "the job reached its time limit, and some of its processes survived KILL"
            ),
            Err(error) => tracing::warn!(job = %job.id, %error, "the job could not be ended"),
        }
    };
    let rest = timeout(grace + END_TIMEOUT, recording.run());
    // Together: unread output would block the connection over which the processes are ended.
    drop(tokio::join!(ending, rest));
    End::Outcome(Outcome::TimedOut(recording.recorder.exit()))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::task::Poll;

    use bytes::Bytes;

    use super::*;
    use sshjobs_job::{Announcements, Backlog, Caller, Draft, Exit, Nonce, Wait};
    use sshjobs_output::{LineNo, PageQuery, RingLimits, Stream};

    /// Events in order; after the last, silence.
    struct Script(VecDeque<FarEvent>);

    impl FarEnd for Script {
        async fn next(&mut self) -> FarEvent {
            match self.0.pop_front() {
                Some(event) => event,
                None => std::future::pending().await,
            }
        }

        fn backlog(&self) -> Backlog {
            Backlog::BlocksTheCommand
        }
    }

    const DRAIN: Duration = Duration::from_secs(2);

    fn recording(events: impl IntoIterator<Item = FarEvent>) -> RecordingTask<Script> {
        let spec = Draft::new("h", "c").try_into().unwrap();
        let job = Arc::new(Job::new(Caller::local(), spec, RingLimits::default()));
        let recorder = Recorder::new(Announcements::new(&Nonce::new(), 0), DRAIN);
        RecordingTask::new(Script(events.into_iter().collect()), job, recorder)
    }

    #[tokio::test(start_paused = true)]
    async fn a_recording_never_waits_for_an_observer() {
        let lines = std::iter::repeat_n(
            FarEvent::Data(Stream::Stdout.into(), "line\n".into()),
            20_000,
        );
        let mut recording = recording(lines.chain([FarEvent::Closed]));
        let job = Arc::clone(&recording.job);
        // An observer that has asked and never looks again.
        let query = PageQuery {
            max_lines: 1,
            max_bytes: 1,
            ..PageQuery::after(LineNo::START)
        };
        let wait = Wait {
            patience: Duration::from_secs(3600),
            ..Wait::default()
        };
        let mut observer = Box::pin(job.tail(&query, &wait));
        assert!(futures_util::poll!(&mut observer).is_pending());
        let start = Instant::now();
        let end = recording.run().await;
        assert_eq!(
            (end, start.elapsed()),
            (End::Outcome(Outcome::Closed), Duration::ZERO)
        );
        let status = job.status();
        assert_eq!((status.total_lines, status.dropped_lines), (20_000, 10_000));
    }

    #[tokio::test]
    async fn recording_a_flood_yields_to_other_tasks() {
        let short_lines = Bytes::from(b"y\n".repeat(16 << 10));
        let flood = std::iter::repeat_n(FarEvent::Data(Stream::Stdout.into(), short_lines), 100);
        let mut recording = recording(flood.chain([FarEvent::Closed]));
        let mut turns = 0;
        let others = std::future::poll_fn(|context| {
            turns += 1;
            context.waker().wake_by_ref();
            Poll::<()>::Pending
        });

        tokio::select! {
            biased;
            _ = recording.run() => {}
            () = others => {}
        }

        // 1.6 million lines take 20 ms at least.
        assert!(turns >= 10, "{turns} turns");
    }

    #[tokio::test(start_paused = true)]
    async fn a_far_end_that_stays_open_after_the_exit_is_left_after_the_drain_time() {
        let mut recording = recording([FarEvent::Started, FarEvent::Exit(Exit::Status(0))]);
        let start = Instant::now();
        let end = recording.run().await;
        assert_eq!(
            (end, start.elapsed()),
            (End::Outcome(Outcome::Ended(Exit::Status(0))), DRAIN)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_recording_that_was_cancelled_continues_where_it_was() {
        let mut recording = recording([FarEvent::Started]);
        assert!(timeout(DRAIN, recording.run()).await.is_err());
        recording.far_end.0.extend([
            FarEvent::Data(Stream::Stdout.into(), "late\n".into()),
            FarEvent::Detached,
        ]);
        assert_eq!(recording.run().await, End::Detached);
        assert_eq!(recording.job.status().total_lines, 1);
    }
}
