//! Turns far-end events into changes of the log. Pure, and tested with every order of events.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::drain::Drain;
use super::far_end::FarEvent;
use crate::announced::Announcements;
use crate::{EndEvidence, Exit, LostWhy, Outcome};
use sshjobs_output::{OutputSource, Stream};

/// Turns the events of a far end into changes of the job's log. Pure: the caller passes the time,
/// and it never waits.
///
/// A job has ended when its far end is closed or lost. If a background child keeps the far end
/// open, it has ended when the command has exited and nothing arrives for the drain time.
#[derive(Debug)]
pub struct Recorder {
    announcements: Announcements,
    announced: u32,
    drain: Drain,
    exit: Option<Exit>,
    eof: bool,
    /// True until the first event other than `Eof`. Only while it is true, `Refused` answers the
    /// exec request.
    may_be_refused: bool,
}

/// A change of a job's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LogChange {
    /// The command runs.
    Started,
    /// The host has reported the job's process group.
    ProcessGroup(u32),
    /// The host has reported facts about the job's end.
    Evidence(EndEvidence),
    /// Output of the command.
    Append(OutputSource, Bytes),
    /// Both streams have ended: unfinished lines become lines.
    FinishStreams,
}

/// How recording ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The job has ended.
    Outcome(Outcome),
    /// The job continues, and another process may record it.
    Detached,
}

/// The result of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Changes to make, in this order.
    pub changes: Vec<LogChange>,
    /// Set when recording has ended.
    pub end: Option<End>,
}

impl Recorder {
    /// A recorder that removes `announcements` from stdout.
    pub fn new(announcements: Announcements, drain: Duration) -> Self {
        Self {
            announcements,
            announced: 0,
            drain: Drain::new(drain),
            exit: None,
            eof: false,
            may_be_refused: true,
        }
    }

    /// Handles an event that happened at `now`.
    pub fn take(&mut self, event: FarEvent, now: Instant) -> Recorded {
        self.drain.heard(now);
        let was_first = self.may_be_refused;
        // The events of the end come in any order, so an Eof may come before the refusal.
        if !matches!(event, FarEvent::Eof) {
            self.may_be_refused = false;
        }
        match event {
            FarEvent::Started => Recorded::of(vec![LogChange::Started]),
            // Only the host's own stdout has announcements.
            FarEvent::Data(source, bytes) if source == Stream::Stdout.into() => self.stdout(bytes),
            FarEvent::Data(source, bytes) => Recorded::of(vec![LogChange::Append(source, bytes)]),
            FarEvent::Eof => self.end_of_file(),
            FarEvent::Exit(exit) => self.exit_told(exit, now),
            FarEvent::Refused if was_first => self.end(End::Outcome(Outcome::Refused)),
            FarEvent::Refused => Recorded::default(),
            // Nothing can follow, as at the end of a drain.
            FarEvent::Closed => self.drained(),
            FarEvent::Lost => self.lost(),
            FarEvent::ProcessGroup(id) => Recorded::of(vec![LogChange::ProcessGroup(id)]),
            FarEvent::Evidence(evidence) => Recorded::of(vec![LogChange::Evidence(evidence)]),
            FarEvent::Over(outcome) => self.end(End::Outcome(outcome)),
            FarEvent::Detached => self.end(End::Detached),
        }
    }

    /// When the job ends even if its far end stays open: after some silence since the command's
    /// exit.
    pub fn drain_ends_at(&self) -> Option<Instant> {
        self.drain.ends_at()
    }

    /// Ends the drain, and returns the changes.
    pub fn drained(&mut self) -> Recorded {
        let outcome = self.exit().map_or(Outcome::Closed, Outcome::Ended);
        self.end(End::Outcome(outcome))
    }

    /// Notes that the far end was held back until `now`, which does not count as silence.
    pub fn was_held(&mut self, now: Instant) {
        self.drain.was_held(now);
    }

    /// How the command ended, if the far end has reported it.
    pub fn exit(&self) -> Option<Exit> {
        self.exit.clone()
    }

    /// Number of process group announcements so far.
    pub fn announced(&self) -> u32 {
        self.announced
    }

    fn stdout(&mut self, bytes: Bytes) -> Recorded {
        let (own, process_group) = self.announcements.strip(bytes);
        let mut changes = Vec::with_capacity(2);
        if !own.is_empty() {
            changes.push(LogChange::Append(Stream::Stdout.into(), own));
        }
        if let Some(id) = process_group {
            self.announced += 1;
            changes.push(LogChange::ProcessGroup(id));
        }
        Recorded::of(changes)
    }

    fn end_of_file(&mut self) -> Recorded {
        self.eof = true;
        // First: held bytes may be the unfinished line that the end of the stream completes.
        let mut changes = self.held_back();
        changes.push(LogChange::FinishStreams);
        Recorded::of(changes)
    }

    /// Only the first report of how the command ended counts.
    fn exit_told(&mut self, exit: Exit, now: Instant) -> Recorded {
        self.exit.get_or_insert(exit);
        self.drain.begin(now);
        // The job has not ended: output may follow the exit.
        Recorded::default()
    }

    /// Ends a job whose connection is lost. If exit and Eof came before, no output is missing.
    fn lost(&mut self) -> Recorded {
        let outcome = match self.exit() {
            Some(exit) if self.eof => Outcome::Ended(exit),
            exit => Outcome::Lost(LostWhy::Connection, exit),
        };
        self.end(End::Outcome(outcome))
    }

    fn end(&mut self, end: End) -> Recorded {
        Recorded {
            changes: self.held_back(),
            end: Some(end),
        }
    }

    /// Returns the bytes that were held back: they are the command's own.
    fn held_back(&mut self) -> Vec<LogChange> {
        let held = self.announcements.finish();
        if held.is_empty() {
            Vec::new()
        } else {
            vec![LogChange::Append(Stream::Stdout.into(), held.into())]
        }
    }
}

impl Recorded {
    fn of(changes: Vec<LogChange>) -> Self {
        Self { changes, end: None }
    }
}

#[cfg(test)]
mod tests;
