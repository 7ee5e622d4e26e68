use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::{Change, Coverage, Exit, LogEvent, Outcome};
use crate::output::{LineNo, Render, Ring, RingLimits, Selection, Stream, Timestamp};

/// How far a job has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The server has not said yet whether it runs the command.
    Starting,
    /// The command runs, or its output is still being drained.
    Running,
    /// Nothing more will come.
    Ended(Outcome),
}

impl Phase {
    /// The name of the state on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Ended(Outcome::Ended(Exit::Status(_))) => "exited",
            Self::Ended(Outcome::Ended(Exit::Signal(_))) => "signaled",
            Self::Ended(Outcome::Lost(..)) => "lost",
            Self::Ended(Outcome::Closed) => "closed",
            Self::Ended(Outcome::Refused | Outcome::NotStarted(_)) => "refused",
            Self::Ended(Outcome::TimedOut(_)) => "timed_out",
        }
    }
}

/// A job's log: the ring of its output, and what became of it. It has one writer, who applies what the recorder says.
#[derive(Debug)]
pub struct Log {
    ring: Ring,
    phase: Phase,
    /// The id of the job's process group on its host, once told.
    pgid: Option<u32>,
    clock: Clock,
    first_output_at: Option<Timestamp>,
    last_output_at: Option<Timestamp>,
    last_output: Option<Instant>,
    ended_at: Option<Timestamp>,
    ended: Option<Instant>,
}

/// What a record tells of a job that was begun earlier, besides its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// How far it had come.
    pub phase: Phase,
    /// When it was asked for.
    pub started_at: Timestamp,
    /// When its first byte came.
    pub first_output_at: Option<Timestamp>,
    /// When its newest byte came.
    pub last_output_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// The id of its process group.
    pub pgid: Option<u32>,
}

/// What is known of a job at one moment, without its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// How far the job has come.
    pub phase: Phase,
    /// When it was asked for.
    pub started_at: Timestamp,
    /// When its first byte came.
    pub first_output_at: Option<Timestamp>,
    /// When its newest byte came.
    pub last_output_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// Lines so far, which is the number of the newest.
    pub total_lines: u64,
    /// Bytes so far, on both streams.
    pub total_bytes: u64,
    /// Lines that were evicted.
    pub dropped_lines: u64,
    /// The oldest line kept, or the next to come.
    pub first_available: LineNo,
    /// Time since the newest byte, or since the start.
    pub silent: Duration,
    /// Why its output is not stored, when it should be.
    pub unstored: Option<String>,
    /// For how long the host of a durable job has been out of reach.
    pub disconnected: Option<Duration>,
}

impl Log {
    /// The log of a job that starts now.
    pub fn new(limits: RingLimits) -> Self {
        Self {
            ring: Ring::new(limits),
            phase: Phase::Starting,
            pgid: None,
            clock: Clock::now(),
            first_output_at: None,
            last_output_at: None,
            last_output: None,
            ended_at: None,
            ended: None,
        }
    }

    /// The log of a job that was begun earlier: its output goes on in `ring`, and its times where they were.
    pub fn resumed(ring: Ring, past: Past) -> Self {
        let Past { phase, started_at, first_output_at, last_output_at, ended_at, pgid } = past;
        let (clock, last_output, ended) = (Clock::resumed(started_at), None, None);
        Self { ring, phase, pgid, clock, first_output_at, last_output_at, last_output, ended_at, ended }
    }

    /// Makes a change that happened at `now`.
    pub fn apply(&mut self, change: &Change, now: Instant) {
        match change {
            Change::Started => self.run(),
            Change::ProcessGroup(id) => self.pgid = Some(*id),
            Change::Append(stream, bytes) => self.append(*stream, bytes, (self.clock.at(now), now)),
            Change::FinishStreams => self.finish_streams(self.clock.at(now)),
        }
    }

    /// Makes what happened at `at`, and is seen now.
    pub fn take(&mut self, event: &LogEvent, (at, now): (Timestamp, Instant)) {
        match event {
            LogEvent::Append(stream, bytes) => self.append(*stream, bytes, (at, now)),
            LogEvent::FinishStreams => self.finish_streams(at),
            LogEvent::End(outcome) => self.end(outcome.clone(), (at, now)),
            LogEvent::Gap(checkpoint) => self.ring = Ring::resumed(self.ring.limits(), checkpoint),
        }
    }

    /// The time at a moment, by the log's clock.
    pub fn time_at(&self, now: Instant) -> Timestamp {
        self.clock.at(now)
    }

    /// Takes output. The command runs, if that was not known yet.
    fn append(&mut self, stream: Stream, bytes: &[u8], (at, now): (Timestamp, Instant)) {
        if bytes.is_empty() {
            return;
        }
        self.run();
        self.first_output_at.get_or_insert(at);
        self.last_output_at = Some(at);
        self.last_output = Some(now);
        self.ring.append(stream, bytes, at);
    }

    /// The server has started the command.
    fn run(&mut self) {
        if self.phase == Phase::Starting {
            self.phase = Phase::Running;
        }
    }

    /// The unfinished line, of a selected stream of a running job, that has stood for so long: what may be a prompt. With one
    /// on both streams, that of stderr.
    pub fn silent_partial(&self, selection: Selection, silence: Duration) -> Option<String> {
        let silent = self.outcome().is_none() && self.last_output.is_some_and(|at| at.elapsed() >= silence);
        let selected = Stream::ALL.into_iter().rev().filter(|&stream| selection.contains(stream));
        let mut partials = selected.filter(|&stream| silent && !self.ring.partial(stream).is_empty());
        partials.next().map(|stream| self.ring.partial_text(stream, Render::Clean))
    }

    fn finish_streams(&mut self, at: Timestamp) {
        for stream in Stream::ALL {
            self.ring.finish(stream, at);
        }
    }

    /// The job is over. Later calls change nothing.
    fn end(&mut self, outcome: Outcome, (at, now): (Timestamp, Instant)) {
        if self.outcome().is_none() {
            self.finish_streams(at);
            self.ended_at = Some(at);
            self.ended = Some(now);
            self.phase = Phase::Ended(outcome);
        }
    }

    /// The output.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The output, to give some of it up.
    pub fn ring_mut(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// How far the job has come.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// What became of the job, when it has ended.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.phase {
            Phase::Ended(outcome) => Some(outcome),
            Phase::Starting | Phase::Running => None,
        }
    }

    /// How the command ended, when that is known and the job is over.
    pub fn exit(&self) -> Option<&Exit> {
        self.outcome().and_then(Outcome::exit)
    }

    /// The id of the job's process group on its host, once told.
    pub fn pgid(&self) -> Option<u32> {
        self.pgid
    }

    /// When the newest byte came.
    pub(super) fn last_output(&self) -> Option<Instant> {
        self.last_output
    }

    /// Time since the job was asked for.
    pub fn age(&self) -> Duration {
        self.clock.age()
    }

    /// Time since the job ended, when it has.
    pub fn ended_for(&self) -> Option<Duration> {
        self.ended.map(|at| at.elapsed())
    }

    fn silent(&self) -> Duration {
        match (self.last_output, self.last_output_at) {
            (Some(at), _) => at.elapsed(),
            (None, Some(at)) => Duration::from_millis(self.clock.at(Instant::now()).saturating_sub(at)),
            (None, None) => self.clock.age(),
        }
    }

    /// Everything but the output.
    pub fn status(&self, coverage: Option<&Coverage>) -> Status {
        let lost = || self.ring.newest().value() - self.ring.line_count() as u64;
        let dropped = coverage.map_or_else(lost, |coverage| coverage.dropped_lines(&self.ring));
        let oldest = || self.ring.first_available();
        let first_available = coverage.map_or_else(oldest, |coverage| coverage.first_available(&self.ring));
        Status {
            phase: self.phase.clone(),
            started_at: self.clock.wall,
            first_output_at: self.first_output_at,
            last_output_at: self.last_output_at,
            ended_at: self.ended_at,
            total_lines: self.ring.newest().value(),
            total_bytes: Stream::ALL.into_iter().map(|stream| self.ring.total_bytes(stream)).sum(),
            dropped_lines: dropped,
            first_available,
            silent: self.silent(),
            unstored: None,
            disconnected: None,
        }
    }
}

/// Wall-clock time that never jumps: the wall clock at the start, and a steady clock from there. Of a job that was begun by
/// another process, the time until this one began is what the wall clock says.
#[derive(Debug)]
struct Clock {
    wall: Timestamp,
    /// How old the job was at `start`.
    before: Duration,
    start: Instant,
}

impl Clock {
    fn now() -> Self {
        Self { wall: wall_now(), before: Duration::ZERO, start: Instant::now() }
    }

    fn resumed(wall: Timestamp) -> Self {
        Self { wall, before: Duration::from_millis(wall_now().saturating_sub(wall)), start: Instant::now() }
    }

    fn at(&self, instant: Instant) -> Timestamp {
        self.wall + millis(self.before + instant.saturating_duration_since(self.start))
    }

    fn age(&self) -> Duration {
        self.before + self.start.elapsed()
    }
}

/// The wall clock.
pub fn wall_now() -> Timestamp {
    millis(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{Page, PageQuery};

    #[tokio::test(start_paused = true)]
    async fn a_log_that_is_resumed_goes_on_with_its_numbers_positions_and_times() {
        let mut first = Log::new(RingLimits::default());
        let now = Instant::now();
        let append = |stream, text: &'static str| Change::Append(stream, text.into());
        first.apply(&append(Stream::Stdout, "é one\n"), now);
        first.apply(&append(Stream::Stderr, "two\n"), now);
        let started_at = wall_now() - 60_000;
        let past = Past {
            phase: Phase::Running,
            started_at,
            first_output_at: None,
            last_output_at: None,
            ended_at: None,
            pgid: None,
        };
        let ring = Ring::resumed(RingLimits::default(), &first.ring().checkpoint());
        let mut log = Log::resumed(ring, past);
        log.apply(&append(Stream::Stdout, "three\n"), Instant::now());
        let page = Page::read(log.ring(), &PageQuery::after(LineNo::START));
        assert_eq!((page.dropped_lines, page.lines[0].line_no.value()), (2, 3));
        assert_eq!(log.ring().total_bytes(Stream::Stdout), "é one\nthree\n".len() as u64);
        let status = log.status(None);
        assert_eq!((status.started_at, status.total_lines, &status.phase), (started_at, 3, &Phase::Running));
        assert!(log.age() >= Duration::from_secs(60));
        assert!(status.last_output_at >= Some(started_at + 60_000), "{status:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_job_that_was_begun_in_what_is_the_future_now_is_not_older_than_nothing() {
        let past = Past {
            phase: Phase::Running,
            started_at: wall_now() + 3_600_000,
            first_output_at: None,
            last_output_at: None,
            ended_at: None,
            pgid: None,
        };
        let mut log = Log::resumed(Ring::new(RingLimits::default()), past.clone());
        assert_eq!(log.age(), Duration::ZERO);
        log.apply(&Change::Append(Stream::Stdout, "line\n".into()), Instant::now());
        assert!(log.status(None).last_output_at >= Some(past.started_at));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_outcome_counts() {
        let mut log = Log::new(RingLimits::default());
        log.end(Outcome::Closed, (0, Instant::now()));
        log.end(Outcome::Refused, (0, Instant::now()));
        assert_eq!(log.outcome(), Some(&Outcome::Closed));
    }
}
