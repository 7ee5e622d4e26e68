use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

use super::{Exit, Outcome};
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

/// A job's log: the ring of its output, and what became of it. It has one writer, the job's reader task.
#[derive(Debug)]
pub struct Log {
    ring: Ring,
    phase: Phase,
    /// The id of the job's process group on its host, once told.
    pgid: Option<u32>,
    announcements: u32,
    clock: Clock,
    first_output_at: Option<Timestamp>,
    last_output: Option<Instant>,
    ended: Option<Instant>,
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
    /// How many lines there have been, and the number of the newest.
    pub total_lines: u64,
    /// How many bytes there have been on both streams.
    pub total_bytes: u64,
    /// How many of the lines were evicted.
    pub dropped_lines: u64,
    /// The oldest line kept, or the next to come.
    pub first_available: LineNo,
    /// How long no byte has come: since the newest one, or the start.
    pub silent: Duration,
}

impl Log {
    /// The log of a job that starts now.
    pub fn new(limits: RingLimits) -> Self {
        Self {
            ring: Ring::new(limits),
            phase: Phase::Starting,
            pgid: None,
            announcements: 0,
            clock: Clock::now(),
            first_output_at: None,
            last_output: None,
            ended: None,
        }
    }

    /// Takes output. The command runs, if that was not known yet.
    pub fn append(&mut self, stream: Stream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.run();
        let now = Instant::now();
        let at = self.clock.at(now);
        self.first_output_at.get_or_insert(at);
        self.last_output = Some(now);
        self.ring.append(stream, bytes, at);
    }

    /// The server has started the command.
    pub fn run(&mut self) {
        if self.phase == Phase::Starting {
            self.phase = Phase::Running;
        }
    }

    /// The host has told the job's process group.
    pub fn know_pgid(&mut self, pgid: u32) {
        self.pgid = Some(pgid);
        self.announcements += 1;
    }

    /// How often the host has told the job's process group.
    pub fn announcements(&self) -> u32 {
        self.announcements
    }

    /// The unfinished line, of a selected stream of a running job, that has stood for so long: what may be a prompt. With one
    /// on both streams, that of stderr.
    pub fn silent_partial(&self, selection: Selection, silence: Duration) -> Option<String> {
        let silent = self.outcome().is_none() && self.last_output.is_some_and(|at| at.elapsed() >= silence);
        let selected = Stream::ALL.into_iter().rev().filter(|&stream| selection.contains(stream));
        let mut partials = selected.filter(|&stream| silent && !self.ring.partial(stream).is_empty());
        partials.next().map(|stream| self.ring.partial_text(stream, Render::Clean))
    }

    /// Nothing more comes on either stream: unfinished lines become lines.
    pub fn finish_streams(&mut self) {
        let at = self.clock.at(Instant::now());
        for stream in Stream::ALL {
            self.ring.finish(stream, at);
        }
    }

    /// The job is over. Later calls change nothing.
    pub fn end(&mut self, outcome: Outcome) {
        if self.outcome().is_none() {
            self.finish_streams();
            self.ended = Some(Instant::now());
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

    /// How long ago the job was asked for.
    pub fn age(&self) -> Duration {
        self.clock.start.elapsed()
    }

    /// How long ago the job ended, when it has.
    pub fn ended_for(&self) -> Option<Duration> {
        self.ended.map(|at| at.elapsed())
    }

    /// Everything but the output.
    pub fn status(&self) -> Status {
        let dropped = self.ring.newest().value() - self.ring.line_count() as u64;
        Status {
            phase: self.phase.clone(),
            started_at: self.clock.wall,
            first_output_at: self.first_output_at,
            last_output_at: self.last_output.map(|at| self.clock.at(at)),
            ended_at: self.ended.map(|at| self.clock.at(at)),
            total_lines: self.ring.newest().value(),
            total_bytes: Stream::ALL.into_iter().map(|stream| self.ring.total_bytes(stream)).sum(),
            dropped_lines: dropped,
            first_available: self.ring.first_available(),
            silent: self.last_output.unwrap_or(self.clock.start).elapsed(),
        }
    }
}

/// Wall-clock time that never jumps: the wall clock at the start, and a steady clock from there.
#[derive(Debug)]
struct Clock {
    wall: Timestamp,
    start: Instant,
}

impl Clock {
    fn now() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { wall: millis(wall), start: Instant::now() }
    }

    fn at(&self, instant: Instant) -> Timestamp {
        self.wall + millis(instant.saturating_duration_since(self.start))
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
