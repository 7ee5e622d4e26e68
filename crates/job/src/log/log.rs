//! The log of a job: ring, state and times. Its changes come from the recorder, directly or by way
//! of the store.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::event::LogEvent;
use super::recorder::LogChange;
use crate::{
    Coverage, EndEvidence, Exit, Kill, Outcome, SentSignal, SignalNote, end_by_host_clock,
};
use sshjobs_output::{
    LineNo, ModeTracker, OutputSource, Render, Ring, RingLimits, Selection, Stream, TerminalModes,
    Timestamp, time_of, timestamp_of,
};

/// State of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It waits for other jobs, or for its place in a queue. Nothing was sent to its host.
    Queued,
    /// The server has not confirmed yet that it runs the command.
    Starting,
    /// The command runs, or its output is still being drained.
    Running,
    /// The job has ended.
    Ended(Outcome),
}

impl Phase {
    /// Whether the host has confirmed that it runs the command, or the job has ended.
    pub fn has_started(&self) -> bool {
        match self {
            Self::Queued | Self::Starting => false,
            Self::Running | Self::Ended(_) => true,
        }
    }

    /// The name of the state on the wire.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Queued => "queued",
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

/// Time within which the end of a followed job is noticed, in milliseconds. Hosts report the end in whole seconds.
const NOTICED_WITHIN: Timestamp = 3_000;

/// A job's log: the ring of its output, and its outcome. It has one writer, which applies the
/// recorder's changes.
#[derive(Debug)]
pub struct Log {
    ring: Ring,
    phase: Phase,
    /// Id of the job's process group on its host, once reported.
    pgid: Option<u32>,
    /// Facts about its end.
    evidence: EndEvidence,
    /// Modes of its terminal, if it has one.
    modes: Option<ModeTracker>,
    clock: Clock,
    first_output_at: Option<Timestamp>,
    last_output_at: Option<Timestamp>,
    last_output: Option<Instant>,
    ended_at: Option<Timestamp>,
    ended: Option<Instant>,
}

/// State of a job that was started earlier, from its record, without its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Past {
    /// Its state.
    pub phase: Phase,
    /// Time of the request.
    pub started_at: Timestamp,
    /// Arrival of its first byte.
    pub first_output_at: Option<Timestamp>,
    /// Arrival of its newest byte.
    pub last_output_at: Option<Timestamp>,
    /// Time of its end.
    pub ended_at: Option<Timestamp>,
    /// Id of its process group.
    pub pgid: Option<u32>,
    /// Facts about its end.
    pub evidence: EndEvidence,
    /// Modes of its terminal, at some time before the end of the kept output.
    pub modes: TerminalModes,
}

/// State of a job at one moment, without its output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status {
    /// Its state.
    pub phase: Phase,
    /// Time of the request.
    pub started_at: SystemTime,
    /// Arrival of its first byte.
    pub first_output_at: Option<SystemTime>,
    /// Arrival of its newest byte.
    pub last_output_at: Option<SystemTime>,
    /// Time of its end.
    pub ended_at: Option<SystemTime>,
    /// Number of lines so far, which is the number of the newest line.
    pub total_lines: u64,
    /// Bytes so far, on both streams.
    pub total_bytes: u64,
    /// Number of evicted lines.
    pub dropped_lines: u64,
    /// The oldest line kept, or the next line to come.
    pub first_available: LineNo,
    /// Time since the newest byte, or since the start.
    pub silent: Duration,
    /// Why its output is not stored, if it should be.
    pub unstored: Option<String>,
    /// Whether the output of another process's job can't be read from the store now.
    pub is_stale: bool,
    /// Time for which the host of a durable job has been unreachable.
    pub disconnected: Option<Duration>,
    /// Modes of its terminal, if it has one.
    pub terminal_modes: TerminalModes,
    /// Facts about its end.
    pub evidence: EndEvidence,
}

impl Log {
    /// The log of a job that starts now.
    pub fn new(limits: RingLimits) -> Self {
        Self {
            ring: Ring::new(limits),
            phase: Phase::Starting,
            pgid: None,
            evidence: EndEvidence::default(),
            modes: None,
            clock: Clock::now(),
            first_output_at: None,
            last_output_at: None,
            last_output: None,
            ended_at: None,
            ended: None,
        }
    }

    /// The log of a job that was started earlier. Its output continues in `ring`, its times
    /// continue those of `past`. [`set_terminal`](Self::set_terminal) must be called next.
    pub fn resumed(ring: Ring, past: Past) -> Self {
        let Past {
            phase,
            started_at,
            first_output_at,
            last_output_at,
            ended_at,
            pgid,
            evidence,
            modes,
        } = past;
        Self {
            ring,
            phase,
            pgid,
            evidence,
            modes: Some(ModeTracker::starting_with(modes)),
            clock: Clock::resumed(started_at),
            first_output_at,
            last_output_at,
            last_output: None,
            ended_at,
            ended: None,
        }
    }

    /// Sets whether the job runs on a terminal. Without one, no modes are tracked. Call it once:
    /// each call reads the modes from the kept output again.
    pub fn set_terminal(&mut self, has_terminal: bool) {
        if !has_terminal {
            self.modes = None;
            return;
        }
        // The record of a resumed job may be older than the output that is kept.
        let modes = self.modes.get_or_insert_default();
        let (_, kept) = self.ring.bytes_from(Stream::Stdout, 0, self.ring.byte_count());
        modes.take(&kept);
    }

    /// Applies a change that happened at `now`.
    pub fn apply(&mut self, change: &LogChange, now: Instant) {
        match change {
            LogChange::Started => self.run(),
            LogChange::ProcessGroup(id) => self.pgid = Some(*id),
            LogChange::Evidence(evidence) => self.evidence.merge(evidence.clone()),
            LogChange::Append(source, bytes) => {
                self.append(*source, bytes, self.clock.at(now), now)
            }
            LogChange::FinishStreams => self.finish_streams(self.clock.at(now)),
        }
    }

    /// Applies an event that happened at `at` and was received at `now`.
    pub fn take(&mut self, event: &LogEvent, at: Timestamp, now: Instant) {
        match event {
            LogEvent::Append(source, bytes) => self.append(*source, bytes, at, now),
            LogEvent::FinishStreams => self.finish_streams(at),
            LogEvent::End(outcome) => self.end(outcome.clone(), at, now),
            LogEvent::Gap(checkpoint) => {
                self.ring = Ring::resumed(self.ring.limits(), checkpoint);
                if let Some(modes) = &mut self.modes {
                    // A control sequence that began before the gap has no end.
                    modes.skip();
                }
            }
        }
    }

    /// Wall-clock time of a moment, by the log's clock.
    pub fn time_at(&self, now: Instant) -> Timestamp {
        self.clock.at(now)
    }

    /// Appends output. This also shows that the command runs.
    fn append(&mut self, source: OutputSource, bytes: &[u8], at: Timestamp, now: Instant) {
        // An empty chunk is not output: it must not end a silence or mark the job as running.
        if bytes.is_empty() {
            return;
        }
        self.run();
        self.first_output_at.get_or_insert(at);
        self.last_output_at = Some(at);
        self.last_output = Some(now);
        if let Some(modes) = &mut self.modes
            && source.stream == Stream::Stdout
        {
            modes.take(bytes);
        }
        self.ring.append(source, bytes, at);
    }

    /// Notes that the server has started the command.
    fn run(&mut self) {
        // Output that is shown after the end must not revive the job.
        if !self.phase.has_started() {
            self.phase = Phase::Running;
        }
    }

    /// Notes that the job waits for its turn.
    pub(crate) fn queue(&mut self) {
        if self.phase == Phase::Starting {
            self.phase = Phase::Queued;
        }
    }

    /// Notes that it is the job's turn to start.
    pub(crate) fn admit(&mut self) {
        if self.phase == Phase::Queued {
            self.phase = Phase::Starting;
        }
    }

    /// The unfinished line of a selected stream of a running job that has not changed for
    /// `silence`: possibly a prompt. If both streams have one, that of stderr.
    pub fn silent_partial(&self, selection: Selection, silence: Duration) -> Option<String> {
        if self.outcome().is_some() || self.silent() < silence {
            return None;
        }
        let stream = Stream::ALL
            .into_iter()
            .rev()
            .find(|&stream| selection.contains(stream) && !self.ring.partial(stream).is_empty())?;
        Some(self.ring.partial_text(stream, Render::Clean))
    }

    fn finish_streams(&mut self, at: Timestamp) {
        for stream in Stream::ALL {
            self.ring.finish(stream, at);
        }
    }

    /// Ends the job. Later calls change nothing.
    fn end(&mut self, outcome: Outcome, at: Timestamp, now: Instant) {
        if self.outcome().is_none() {
            self.finish_streams(at);
            self.ended_at = Some(self.time_of_end(at));
            self.ended = Some(now);
            self.phase = Phase::Ended(outcome);
        }
    }

    /// The time of the end: that of the host, if it was noticed late because no process followed the job.
    fn time_of_end(&self, noticed: Timestamp) -> Timestamp {
        let on_host = self.evidence.ended_on_host;
        let on_host = on_host.and_then(|seconds| end_by_host_clock(self.clock.wall, seconds));
        let was_noticed_late = |time: &Timestamp| *time < noticed.saturating_sub(NOTICED_WITHIN);
        on_host.filter(was_noticed_late).unwrap_or(noticed)
    }

    /// The output.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The output, to evict some of it.
    pub fn ring_mut(&mut self) -> &mut Ring {
        &mut self.ring
    }

    /// State of the job.
    pub fn phase(&self) -> &Phase {
        &self.phase
    }

    /// The job's outcome, if it has ended.
    pub fn outcome(&self) -> Option<&Outcome> {
        match &self.phase {
            Phase::Ended(outcome) => Some(outcome),
            Phase::Queued | Phase::Starting | Phase::Running => None,
        }
    }

    /// How the command ended, if that is known and the job has ended.
    pub fn exit(&self) -> Option<&Exit> {
        self.outcome().and_then(Outcome::exit)
    }

    /// Id of the job's process group on its host, once reported.
    pub fn pgid(&self) -> Option<u32> {
        self.pgid
    }

    /// Notes how many GPUs of the host fit the job, which waits for some of them.
    pub(crate) fn note_fitting_gpus(&mut self, count: usize) {
        self.evidence.fitting_gpus = Some(count);
    }

    /// Notes the GPUs that the job is given.
    pub(crate) fn give_gpus(&mut self, ids: Vec<String>) {
        self.evidence.gpus = ids;
    }

    /// Notes whether the job is ended because no call has named it. Later calls than its end change
    /// nothing.
    pub(crate) fn set_abandoned(&mut self, is_abandoned: bool) {
        if self.outcome().is_none() {
            self.evidence.abandoned = is_abandoned;
        }
    }

    /// Notes that a signal is sent to the job through sshjobs, unless the job has ended.
    pub(crate) fn note_sent(&mut self, kill: Kill) -> SignalNote {
        let before = self.evidence.sent.clone();
        if self.outcome().is_none()
            && let Some(sent) = SentSignal::of(kill)
        {
            self.evidence.note_sent(sent);
        }
        SignalNote {
            before,
            after: self.evidence.sent.clone(),
        }
    }

    /// Takes the note of a signal back, unless another signal was noted after it.
    pub(crate) fn take_back_sent(&mut self, note: SignalNote) {
        if self.evidence.sent == note.after {
            self.evidence.sent = note.before;
        }
    }

    /// Facts about the job's end.
    pub fn evidence(&self) -> &EndEvidence {
        &self.evidence
    }

    /// Arrival of the newest byte.
    pub fn last_output(&self) -> Option<Instant> {
        self.last_output
    }

    /// Time since the job was requested.
    pub fn age(&self) -> Duration {
        self.clock.age()
    }

    /// Time since the job ended, if it has.
    pub fn ended_for(&self) -> Option<Duration> {
        self.ended.map(|at| at.elapsed())
    }

    fn silent(&self) -> Duration {
        match (self.last_output, self.last_output_at) {
            (Some(at), _) => at.elapsed(),
            // The newest byte was read from the store: only its wall-clock time is known.
            (None, Some(at)) => {
                Duration::from_millis(self.clock.at(Instant::now()).saturating_sub(at))
            }
            (None, None) => self.clock.age(),
        }
    }

    /// Everything but the output.
    pub fn status(&self, coverage: Option<&Coverage>) -> Status {
        let dropped = coverage.map_or_else(
            || self.ring.newest().value() - self.ring.line_count() as u64,
            |coverage| coverage.dropped_lines(&self.ring),
        );
        let first_available = coverage.map_or_else(
            || self.ring.first_available(),
            |coverage| coverage.first_available(&self.ring),
        );
        Status {
            phase: self.phase.clone(),
            started_at: time_of(self.clock.wall),
            first_output_at: self.first_output_at.map(time_of),
            last_output_at: self.last_output_at.map(time_of),
            ended_at: self.ended_at.map(time_of),
            total_lines: self.ring.newest().value(),
            total_bytes: Stream::ALL.into_iter().map(|stream| self.ring.total_bytes(stream)).sum(),
            dropped_lines: dropped,
            first_available,
            silent: self.silent(),
            unstored: None,
            is_stale: false,
            disconnected: None,
            terminal_modes: self.modes.as_ref().map(ModeTracker::modes).unwrap_or_default(),
            evidence: self.evidence.clone(),
        }
    }
}

/// Wall-clock time that never jumps: the wall clock at the start plus a steady clock. For a job
/// started by another process, the time before this process took over comes from the wall clock.
#[derive(Debug)]
struct Clock {
    wall: Timestamp,
    /// Age of the job at `start`.
    before: Duration,
    start: Instant,
}

impl Clock {
    fn now() -> Self {
        Self {
            wall: wall_now(),
            before: Duration::ZERO,
            start: Instant::now(),
        }
    }

    fn resumed(wall: Timestamp) -> Self {
        Self {
            wall,
            // Zero if the wall clock was set back since the start.
            before: Duration::from_millis(wall_now().saturating_sub(wall)),
            start: Instant::now(),
        }
    }

    fn at(&self, instant: Instant) -> Timestamp {
        self.wall + millis(self.before + instant.saturating_duration_since(self.start))
    }

    fn age(&self) -> Duration {
        self.before + self.start.elapsed()
    }
}

/// Current wall-clock time.
pub fn wall_now() -> Timestamp {
    timestamp_of(SystemTime::now())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sshjobs_output::{Page, PageQuery};

    #[tokio::test(start_paused = true)]
    async fn a_resumed_log_continues_its_numbers_positions_and_times() {
        let mut first = Log::new(RingLimits::default());
        let now = Instant::now();
        let append =
            |stream: Stream, text: &'static str| LogChange::Append(stream.into(), text.into());
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
            evidence: EndEvidence::default(),
            modes: TerminalModes::default(),
        };
        let ring = Ring::resumed(RingLimits::default(), &first.ring().checkpoint());
        let mut log = Log::resumed(ring, past);
        log.apply(&append(Stream::Stdout, "three\n"), Instant::now());
        let page = Page::read(log.ring(), &PageQuery::after(LineNo::START));
        assert_eq!((page.dropped_lines, page.lines[0].line_no.value()), (2, 3));
        assert_eq!(
            log.ring().total_bytes(Stream::Stdout),
            "é one\nthree\n".len() as u64
        );
        let status = log.status(None);
        assert_eq!(
            (status.started_at, status.total_lines, &status.phase),
            (time_of(started_at), 3, &Phase::Running)
        );
        assert!(log.age() >= Duration::from_secs(60));
        assert!(
            status.last_output_at >= Some(time_of(started_at + 60_000)),
            "{status:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn the_age_of_a_job_that_started_in_the_future_is_zero() {
        let past = Past {
            phase: Phase::Running,
            started_at: wall_now() + 3_600_000,
            first_output_at: None,
            last_output_at: None,
            ended_at: None,
            pgid: None,
            evidence: EndEvidence::default(),
            modes: TerminalModes::default(),
        };
        let mut log = Log::resumed(Ring::new(RingLimits::default()), past.clone());
        assert_eq!(log.age(), Duration::ZERO);
        log.apply(
            &LogChange::Append(Stream::Stdout.into(), "line\n".into()),
            Instant::now(),
        );
        assert!(log.status(None).last_output_at >= Some(time_of(past.started_at)));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_outcome_counts() {
        let mut log = Log::new(RingLimits::default());
        log.end(Outcome::Closed, 0, Instant::now());
        log.end(Outcome::Refused, 0, Instant::now());
        assert_eq!(log.outcome(), Some(&Outcome::Closed));
    }
}
