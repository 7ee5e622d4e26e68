use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout};

use super::shared::Shared;
use super::signal_tree::{SignalReport, end_tree};
use super::stdin::Stdin;
use crate::hosts::{Lease, Link};
use crate::job::{End, FarEnd, FarEvent, Job, Outcome, Recorded, Recorder, Signal};

/// After the end: time limit for the server to close the channel.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the end of a job to be stored and shown.
const END_SHOWN: Duration = Duration::from_secs(2);
/// Interval of keepalives while output is held back. ClientAliveInterval is a second at least.
const SIGN_OF_LIFE: Duration = Duration::from_millis(500);
/// After its tree was killed: time limit for the server to say that the job is over.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// The one writer of a job's log: takes events from the far end and makes the changes that the recorder finds in them. It never
/// waits for anyone who reads the log.
pub(super) struct Recording<F> {
    far_end: F,
    job: Arc<Job>,
    recorder: Recorder,
    /// Announcements of the job's process group so far.
    announced: watch::Sender<u32>,
    /// The far end has said that nothing more will come.
    is_closed: bool,
}

impl<F: FarEnd> Recording<F> {
    pub(super) fn new(far_end: F, job: Arc<Job>, recorder: Recorder) -> Self {
        Self { far_end, job, recorder, announced: watch::Sender::new(0), is_closed: false }
    }

    /// Announcements of the job's process group so far.
    pub(super) fn announced(&self) -> watch::Receiver<u32> {
        self.announced.subscribe()
    }

    /// Records until the job is over or detached. Cancel safe: it can be called again and goes on.
    async fn run(&mut self) -> End {
        loop {
            let recorded = match self.next().await {
                Next::Event(event) => {
                    self.is_closed = event.is_last();
                    self.recorder.take(event, Instant::now())
                }
                Next::Drained => self.recorder.drained(),
                Next::WasHeld => {
                    self.recorder.was_held(Instant::now());
                    continue;
                }
            };
            if let Some(end) = self.apply(recorded) {
                return end;
            }
        }
    }

    async fn next(&mut self) -> Next {
        let Some(drained_at) = self.recorder.drain_ends_at() else {
            return Next::Event(self.far_end.next().await);
        };
        if !self.job.is_held() {
            return tokio::select! {
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
            () = self.job.has_room() => Next::WasHeld,
        }
    }

    fn apply(&self, Recorded { changes, end }: Recorded) -> Option<End> {
        self.job.record(changes, Instant::now());
        let announced = self.recorder.announced();
        self.announced.send_if_modified(|known| std::mem::replace(known, announced) != announced);
        end
    }

    /// After the end: takes what still comes until the far end is closed, so that it can't hold up the others on its connection.
    async fn drop_until_closed(mut self) {
        while !self.is_closed {
            self.is_closed = self.far_end.next().await.is_last();
        }
    }
}

/// What there is to record.
enum Next {
    Event(FarEvent),
    /// The command has exited, and nothing more has come for the drain time.
    Drained,
    /// The far end was held back until now.
    WasHeld,
}

/// Stays with a job from its start to its end, then cleans up after it.
pub(super) async fn record<F: FarEnd>(
    shared: Arc<Shared>,
    mut recording: Recording<F>,
    stdin: Arc<Stdin>,
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
            // First, for a flood would let nothing else have its turn.
            never = hold_back(&job, lease.connection()) => never,
            end = record_within_limit(&shared, &mut recording, &stdin) => end,
            never = feeding => never,
        }
    };
    lease.connection().connection.hold(false);
    match end {
        End::Outcome(outcome) => {
            tracing::info!(job = %job.id, ?outcome, "job ended");
            job.end(outcome);
            // It is over when that is stored and shown.
            job.over_within(END_SHOWN).await;
            shared.registry().finish(&job.id);
        }
        End::Detached => {
            tracing::info!(job = %job.id, "job detached");
            shared.registry().detach(&job.id);
        }
    }
    // A connection that is lost needs no closing.
    stdin.controls().close().await.ok();
    drop(timeout(CLOSE_TIMEOUT, recording.drop_until_closed()).await);
    let link = Arc::clone(lease.connection());
    drop(lease);
    link.job_ends().await;
}

/// Stays with a durable job while it is followed from here.
pub(super) async fn record_durable<F: FarEnd>(shared: Arc<Shared>, mut recording: Recording<F>) {
    let job = Arc::clone(&recording.job);
    match recording.run().await {
        End::Outcome(outcome) => {
            tracing::info!(job = %job.id, ?outcome, "durable job ended");
            job.end(outcome);
            // It is over when that is stored and shown.
            job.over_within(END_SHOWN).await;
            shared.registry().finish(&job.id);
        }
        End::Detached => shared.registry().detach(&job.id),
    }
}

/// Holds the far end back while the follower that it is to wait for is behind. A job that is held so has its connection to itself.
async fn hold_back(job: &Job, link: &Link) -> ! {
    loop {
        job.runs_ahead().await;
        link.connection.hold(true);
        // A server that wants signs of life (ClientAliveInterval) gets no answers now.
        while timeout(SIGN_OF_LIFE, job.has_room()).await.is_err() {
            link.connection.show_life().await;
        }
        link.connection.hold(false);
    }
}

async fn record_within_limit<F: FarEnd>(shared: &Shared, recording: &mut Recording<F>, stdin: &Stdin) -> End {
    let job = Arc::clone(&recording.job);
    let Some(limit) = job.spec.timeout else { return recording.run().await };
    if let Ok(end) = timeout(limit, recording.run()).await {
        return end;
    }
    tracing::info!(job = %job.id, ?limit, "time limit reached");
    let grace = shared.limits.kill_grace();
    let ending = async {
        match end_tree(shared, &job, (Signal::TERM, Some(grace)), stdin.controls()).await {
            // Nothing more comes than what is on its way, and for that there is room.
            Ok(SignalReport { confirmed_dead: true, .. }) => job.let_go(),
            Ok(report) => tracing::warn!(job = %job.id, ?report, "the job is not verified dead"),
            Err(error) => tracing::warn!(job = %job.id, %error, "the job could not be ended"),
        }
    };
    let rest = timeout(grace + END_TIMEOUT, recording.run());
    drop(tokio::join!(ending, rest));
    End::Outcome(Outcome::TimedOut(recording.recorder.exit()))
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::job::{Announcements, Caller, Draft, Exit, Nonce, Wait};
    use crate::output::{LineNo, PageQuery, RingLimits, Stream};

    /// Events in order; after the last, silence.
    struct Script(VecDeque<FarEvent>);

    impl FarEnd for Script {
        async fn next(&mut self) -> FarEvent {
            match self.0.pop_front() {
                Some(event) => event,
                None => std::future::pending().await,
            }
        }
    }

    const DRAIN: Duration = Duration::from_secs(2);

    fn recording(events: impl IntoIterator<Item = FarEvent>) -> Recording<Script> {
        let spec = Draft::new("h", "c").try_into().unwrap();
        let job = Arc::new(Job::new(Caller::local(), spec, RingLimits::default()));
        let recorder = Recorder::new(Announcements::new(&Nonce::new(), 0), DRAIN);
        Recording::new(Script(events.into_iter().collect()), job, recorder)
    }

    #[tokio::test(start_paused = true)]
    async fn a_recording_never_waits_for_an_observer() {
        let lines = std::iter::repeat_n(FarEvent::Data(Stream::Stdout, "line\n".into()), 20_000);
        let mut recording = recording(lines.chain([FarEvent::Closed]));
        let job = Arc::clone(&recording.job);
        // An observer that has asked and never looks again.
        let (query, wait) = (
            PageQuery { max_lines: 1, max_bytes: 1, ..PageQuery::after(LineNo::START) },
            Wait { patience: Duration::from_secs(3600), ..Wait::default() },
        );
        let mut observer = Box::pin(job.tail(&query, &wait));
        assert!(futures_util::poll!(&mut observer).is_pending());
        let start = Instant::now();
        let end = recording.run().await;
        assert_eq!((end, start.elapsed()), (End::Outcome(Outcome::Closed), Duration::ZERO));
        let status = job.status();
        assert_eq!((status.total_lines, status.dropped_lines), (20_000, 10_000));
    }

    #[tokio::test(start_paused = true)]
    async fn a_far_end_that_stays_open_after_the_exit_is_left_after_the_drain_time() {
        let mut recording = recording([FarEvent::Started, FarEvent::Exit(Exit::Status(0))]);
        let start = Instant::now();
        let end = recording.run().await;
        assert_eq!((end, start.elapsed()), (End::Outcome(Outcome::Ended(Exit::Status(0))), DRAIN));
    }

    #[tokio::test(start_paused = true)]
    async fn a_recording_that_was_cancelled_goes_on_where_it_was() {
        let mut recording = recording([FarEvent::Started]);
        assert!(timeout(DRAIN, recording.run()).await.is_err());
        recording.far_end.0.extend([FarEvent::Data(Stream::Stdout, "late\n".into()), FarEvent::Detached]);
        assert_eq!(recording.run().await, End::Detached);
        assert_eq!(recording.job.status().total_lines, 1);
    }
}
