use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::drain::Drain;
use super::{Announcements, Exit, FarEvent, LostWhy, Outcome};
use crate::output::Stream;

/// Turns the events of a far end into changes of the job's log. Pure: it is handed the time, and waits for nobody.
///
/// A job is over when its far end is closed or lost, or when the command has exited and nothing more comes for the drain
/// time, as when a background child keeps its streams open.
#[derive(Debug)]
pub struct Recorder {
    announcements: Announcements,
    announced: u32,
    drain: Drain,
    exit: Option<Exit>,
    eof: bool,
    /// No event has come yet but perhaps Eof, so that a refusal is that of the command.
    may_be_refused: bool,
}

/// A change of a job's log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The command runs.
    Started,
    /// The host has told the job's process group.
    ProcessGroup(u32),
    /// Bytes of the command's own.
    Append(Stream, Bytes),
    /// Nothing more comes on either stream: unfinished lines become lines.
    FinishStreams,
}

/// How recording ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// The job is over.
    Outcome(Outcome),
    /// The job goes on, and somebody else may record it.
    Detached,
}

/// The result of an event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recorded {
    /// Changes to make, in this order.
    pub changes: Vec<Change>,
    /// Set when nothing more is to be recorded.
    pub end: Option<End>,
}

impl Recorder {
    /// A recorder that takes `announcements` out of stdout.
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

    /// Takes what happened at `now`.
    pub fn take(&mut self, event: FarEvent, now: Instant) -> Recorded {
        self.drain.heard(now);
        let was_first = self.may_be_refused;
        if !matches!(event, FarEvent::Eof) {
            self.may_be_refused = false;
        }
        match event {
            FarEvent::Started => Recorded::of(vec![Change::Started]),
            FarEvent::Data(Stream::Stdout, bytes) => self.stdout(bytes),
            FarEvent::Data(Stream::Stderr, bytes) => {
                Recorded::of(vec![Change::Append(Stream::Stderr, bytes)])
            }
            FarEvent::Eof => self.end_of_file(),
            FarEvent::Exit(exit) => self.exit_told(exit, now),
            FarEvent::Refused if was_first => self.end(End::Outcome(Outcome::Refused)),
            FarEvent::Refused => Recorded::default(),
            FarEvent::Closed => self.drained(),
            FarEvent::Lost => self.lost(),
            FarEvent::ProcessGroup(id) => Recorded::of(vec![Change::ProcessGroup(id)]),
            FarEvent::Over(outcome) => self.end(End::Outcome(outcome)),
            FarEvent::Detached => self.end(End::Detached),
        }
    }

    /// When the job is over even if its far end stays open: some silence after the command's exit.
    pub fn drain_ends_at(&self) -> Option<Instant> {
        self.drain.ends_at()
    }

    /// The changes to make at that moment.
    pub fn drained(&mut self) -> Recorded {
        let outcome = self.exit().map_or(Outcome::Closed, Outcome::Ended);
        self.end(End::Outcome(outcome))
    }

    /// The far end was held back until `now`, which does not count as silence.
    pub fn was_held(&mut self, now: Instant) {
        self.drain.was_held(now);
    }

    /// How the command ended, if the far end has told.
    pub fn exit(&self) -> Option<Exit> {
        self.exit.clone()
    }

    /// Announcements of the job's process group so far.
    pub fn announced(&self) -> u32 {
        self.announced
    }

    fn stdout(&mut self, bytes: Bytes) -> Recorded {
        let (own, process_group) = self.announcements.strip(bytes);
        let mut changes = Vec::with_capacity(2);
        if !own.is_empty() {
            changes.push(Change::Append(Stream::Stdout, own));
        }
        if let Some(id) = process_group {
            self.announced += 1;
            changes.push(Change::ProcessGroup(id));
        }
        Recorded::of(changes)
    }

    fn end_of_file(&mut self) -> Recorded {
        self.eof = true;
        let mut changes = self.held_back();
        changes.push(Change::FinishStreams);
        Recorded::of(changes)
    }

    /// The first report of how the command ended counts.
    fn exit_told(&mut self, exit: Exit, now: Instant) -> Recorded {
        self.exit.get_or_insert(exit);
        self.drain.begin(now);
        Recorded::default()
    }

    /// A connection that is lost after exit and Eof has lost no output.
    fn lost(&mut self) -> Recorded {
        let outcome = match self.exit() {
            Some(exit) if self.eof => Outcome::Ended(exit),
            exit => Outcome::Lost(LostWhy::Connection, exit),
        };
        self.end(End::Outcome(outcome))
    }

    fn end(&mut self, end: End) -> Recorded {
        Recorded { changes: self.held_back(), end: Some(end) }
    }

    /// Bytes that were held back turn out to be the command's own.
    fn held_back(&mut self) -> Vec<Change> {
        let held = self.announcements.finish();
        if held.is_empty() { Vec::new() } else { vec![Change::Append(Stream::Stdout, held.into())] }
    }
}

impl Recorded {
    fn of(changes: Vec<Change>) -> Self {
        Self { changes, end: None }
    }
}

#[cfg(test)]
mod tests;
