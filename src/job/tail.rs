use std::time::Duration;

use regex::Regex;
use tokio::time::Instant;

use super::{Log, Status};
use crate::output::{LineNo, Page, PageQuery, Stream};

/// When a [`tail`](super::Job::tail) that finds nothing to say comes back. The end of the job always ends it.
#[derive(Clone, Debug, Default)]
pub struct Wait {
    /// How long at most.
    pub patience: Duration,
    /// Not at the first new line, but when a line or the unfinished one matches.
    pub until: Option<Regex>,
    /// Not at the first new line, but when no byte has come for this long: since the newest one, or since the call
    /// while nothing is new.
    pub quiet: Option<Duration>,
    /// How many bytes of output are no news to the caller, though its cursor is behind them: an unfinished line that it
    /// has answered.
    pub known_bytes: u64,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnedBecause {
    /// There are lines, or a full page of them while waiting for something else.
    Lines,
    /// The pattern matched, in this line or in the unfinished one.
    Matched(Option<LineNo>),
    /// It has been silent for long enough.
    Quiet,
    /// The job is over, and this page reaches its end.
    Ended,
    /// Patience ran out.
    Timeout,
}

impl ReturnedBecause {
    /// The line that matched, when one did.
    pub fn matched_line(self) -> Option<LineNo> {
        if let Self::Matched(line) = self { line } else { None }
    }
}

/// What a tail answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The cursor it was read from.
    pub cursor: LineNo,
    /// The lines behind the cursor.
    pub page: Page,
    /// The unfinished last lines of the selected streams, rendered: shown, not consumed.
    pub partial: Vec<(Stream, String)>,
    /// The job at that moment.
    pub status: Status,
    /// What ended the wait.
    pub because: ReturnedBecause,
}

/// One look at the log by someone who waits.
pub(super) struct Glance<'a> {
    pub(super) query: &'a PageQuery,
    pub(super) wait: &'a Wait,
    pub(super) called: Instant,
}

pub(super) enum Glanced {
    Answer(Box<Tail>),
    /// Nothing to say before the log changes or this moment comes.
    Nothing {
        look_again_at: Instant,
    },
}

impl Glance<'_> {
    pub(super) fn at(&self, log: &Log, deadline: Instant) -> Glanced {
        let query = self.query;
        let has_line = log.ring().lines_after(query.cursor, query.selection).next().is_some();
        let now = Instant::now();
        let quiet_at = self.quiet_at(log, has_line);
        let plain = self.wait.until.is_none() && self.wait.quiet.is_none();
        let due = log.outcome().is_some()
            || now >= deadline
            || quiet_at.is_some_and(|at| now >= at)
            || (plain && has_line);
        if !due && self.wait.until.is_none() {
            return Glanced::Nothing { look_again_at: quiet_at.unwrap_or(deadline).min(deadline) };
        }
        let mut tail = self.answer(log);
        if let Some(matched) = self.find_match(&mut tail) {
            tail.because = ReturnedBecause::Matched(matched);
        } else if log.outcome().is_some() && !tail.page.has_more {
            tail.because = ReturnedBecause::Ended;
        } else if tail.page.has_more || (plain && has_line) {
            tail.because = ReturnedBecause::Lines;
        } else if quiet_at.is_some_and(|at| now >= at) {
            tail.because = ReturnedBecause::Quiet;
        } else if now < deadline {
            return Glanced::Nothing { look_again_at: quiet_at.unwrap_or(deadline).min(deadline) };
        }
        Glanced::Answer(Box::new(tail))
    }

    fn quiet_at(&self, log: &Log, has_line: bool) -> Option<Instant> {
        let quiet = self.wait.quiet?;
        let bytes: u64 = Stream::ALL.into_iter().map(|stream| log.ring().total_bytes(stream)).sum();
        let has_partial = Stream::ALL
            .into_iter()
            .any(|stream| self.query.selection.contains(stream) && !log.ring().partial(stream).is_empty());
        let is_new = (has_line || has_partial) && bytes > self.wait.known_bytes;
        let since = log.last_output().filter(|_| is_new).unwrap_or(self.called);
        Some(since + quiet)
    }

    fn answer(&self, log: &Log) -> Tail {
        Tail {
            cursor: self.query.cursor,
            page: Page::read(log.ring(), self.query),
            partial: partials(log, self.query),
            status: log.status(),
            because: ReturnedBecause::Timeout,
        }
    }

    /// Looks for the pattern; the page then ends with the line that matches.
    fn find_match(&self, tail: &mut Tail) -> Option<Option<LineNo>> {
        let until = self.wait.until.as_ref()?;
        if let Some(index) = tail.page.lines.iter().position(|line| until.is_match(&line.text)) {
            tail.page.has_more |= index + 1 < tail.page.lines.len();
            tail.page.lines.truncate(index + 1);
            return Some(Some(tail.page.lines[index].line_no));
        }
        let in_partial = !tail.page.has_more && tail.partial.iter().any(|(_, text)| until.is_match(text));
        in_partial.then_some(None)
    }
}

fn partials(log: &Log, query: &PageQuery) -> Vec<(Stream, String)> {
    let wanted = |stream: &Stream| query.selection.contains(*stream);
    let partial = |stream| (stream, log.ring().partial_text(stream, query.render));
    Stream::ALL.into_iter().filter(wanted).map(partial).filter(|(_, text)| !text.is_empty()).collect()
}

impl Tail {
    /// False only when the job is over, everything is drained, and this page reaches the end.
    pub fn still_running(&self) -> bool {
        self.status.ended_at.is_none() || self.page.has_more
    }
}

#[cfg(test)]
mod tests;
