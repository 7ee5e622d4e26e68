//! Events of a job: one definition for notifications, waits and watches.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use regex::Regex;
use tokio::time::Instant;

use crate::admission::ReadOutput;
use crate::jobs::{Error, LineNo, PageQuery, Phase, ReadableJob, Selection, Stream, TooSlow, Wait};
use crate::runner::{Permitted, Runner, SeenJob};
use sshjobs_job::Log;
use sshjobs_job::notify::{Occasion, shortened};

/// The events that are waited for.
#[derive(Clone, Debug, Default)]
pub struct AwaitedEvents {
    /// The job ends.
    pub end: bool,
    /// It waits for input.
    pub prompt: bool,
    /// It prints nothing for this long.
    pub silence: Option<Duration>,
    /// A line matches.
    pub pattern: Option<Regex>,
}

/// A position between two events of a job. The default is the start of the job.
///
/// As a text it is a line number, followed by the newest events there: `120`, `120p4096`, `300e`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EventCursor {
    /// Lines up to this one were looked at.
    pub line: LineNo,
    /// Bytes that the job had printed at its newest known prompt.
    pub prompt_at: Option<u64>,
    /// Bytes that the job had printed at its newest known silence.
    pub silence_at: Option<u64>,
    /// Whether the job has ended. No event follows.
    pub is_at_end: bool,
}

/// Result of a look for events.
#[derive(Clone, Debug)]
pub struct EventLook {
    /// The first event after the cursor, if there is one.
    pub event: Option<Occasion>,
    /// The cursor for the next look.
    pub cursor: EventCursor,
}

/// Time between two looks for a prompt: each may ask the host.
const PROMPT_LOOK: Duration = Duration::from_secs(2);
/// Time after which a line without an end is looked at for the first time.
const FIRST_PROMPT_LOOK: Duration = Duration::from_millis(600);

impl ReadableJob {
    /// Looks for the first event after a cursor, at most for `patience`. Looking changes nothing: the same
    /// call finds the same line or end again, and a prompt or silence as long as it lasts. Cancel safe.
    ///
    /// # Errors
    /// [`Error::TooSlow`] if the pattern takes too long.
    pub async fn next_event(
        &self,
        awaited: &AwaitedEvents,
        cursor: EventCursor,
        patience: Duration,
    ) -> Result<EventLook, Error> {
        let source = EventSource {
            runner: self.door.runner(),
            job: self.output(),
        };
        Ok(source.next(awaited, cursor, patience).await?)
    }
}

/// A job whose events are looked for.
#[derive(Clone, Copy)]
pub(super) struct EventSource<'a> {
    pub(super) runner: &'a Runner,
    pub(super) job: Permitted<'a, ReadOutput>,
}

impl EventSource<'_> {
    /// Implements [`ReadableJob::next_event`].
    pub(super) async fn next(
        self,
        awaited: &AwaitedEvents,
        mut cursor: EventCursor,
        patience: Duration,
    ) -> Result<EventLook, TooSlow> {
        let deadline = Instant::now().checked_add(patience);
        while !cursor.is_at_end {
            // Read first, so that output from here on ends the wait below.
            let bytes = self.job.read_log(total_bytes);
            let has_started = self.job.read_log(|log| log.phase().has_started());
            // Before the lines, so that the end comes after the last of them.
            let is_over = self.job.is_over();
            let event = match self.next_match(awaited, &mut cursor).await? {
                Some(matched) => Some(matched),
                None if is_over => {
                    cursor.is_at_end = true;
                    awaited.end.then_some(Occasion::Ended)
                }
                None => match self.prompt(awaited, &mut cursor, bytes).await {
                    Some(prompt) => Some(prompt),
                    None => self.silence(awaited, &mut cursor, bytes),
                },
            };
            let now = Instant::now();
            let left = deadline.map_or(Duration::MAX, |end| end.saturating_duration_since(now));
            if event.is_some() || left.is_zero() {
                return Ok(EventLook { event, cursor });
            }
            let pause = self.until_next_look(awaited, cursor, bytes).min(left);
            self.job
                .wait_for(pause, |log| {
                    log.outcome().is_some()
                        || total_bytes(log) != bytes
                        || log.phase().has_started() != has_started
                })
                .await;
        }
        Ok(EventLook {
            event: None,
            cursor,
        })
    }

    /// The first line after the cursor that matches. Moves the cursor to it, or to the end of the lines.
    async fn next_match(
        self,
        awaited: &AwaitedEvents,
        cursor: &mut EventCursor,
    ) -> Result<Option<Occasion>, TooSlow> {
        let wait = Wait {
            filter: awaited.pattern.clone(),
            ..Wait::default()
        };
        if wait.filter.is_none() {
            cursor.line = LineNo::new(self.job.status().total_lines).max(cursor.line);
            return Ok(None);
        }
        loop {
            let query = PageQuery {
                max_lines: 1,
                ..PageQuery::after(cursor.line)
            };
            let page = self.job.tail(&query, &wait).await?.page;
            cursor.line = page.last_line_no;
            if let Some(line) = page.lines.into_iter().next() {
                return Ok(Some(Occasion::Matched {
                    line_no: line.line_no.value(),
                    text: shortened(&line.text),
                }));
            }
            if !page.has_more {
                return Ok(None);
            }
        }
    }

    /// A prompt, if the job asks a question and this one was not reported yet.
    async fn prompt(
        self,
        awaited: &AwaitedEvents,
        cursor: &mut EventCursor,
        bytes: u64,
    ) -> Option<Occasion> {
        if !awaited.prompt || cursor.prompt_at == Some(bytes) {
            return None;
        }
        let job = SeenJob::new(Arc::clone(&self.job));
        if !self.runner.awaits_input(&job, Selection::Both).await {
            return None;
        }
        // Output meanwhile is the answer, or another question.
        if self.job.read_log(total_bytes) != bytes {
            return None;
        }
        let text = self.unfinished()?;
        cursor.prompt_at = Some(bytes);
        Some(Occasion::Prompt {
            text: shortened(&text),
        })
    }

    /// A silence, if the job is silent and this one was not reported yet.
    fn silence(
        self,
        awaited: &AwaitedEvents,
        cursor: &mut EventCursor,
        bytes: u64,
    ) -> Option<Occasion> {
        let limit = awaited.silence?;
        let status = self.job.status();
        let is_silent = status.phase == Phase::Running && status.silent >= limit;
        if cursor.silence_at == Some(bytes) || !is_silent {
            return None;
        }
        cursor.silence_at = Some(bytes);
        Some(Occasion::Silent {
            seconds: limit.as_secs(),
        })
    }

    /// Time after which there may be an event although nothing was printed.
    fn until_next_look(self, awaited: &AwaitedEvents, cursor: EventCursor, bytes: u64) -> Duration {
        let status = self.job.status();
        let silent = status.silent;
        let may_be_silent = status.phase == Phase::Running && cursor.silence_at != Some(bytes);
        let silence = awaited
            .silence
            .filter(|_| may_be_silent)
            .map(|limit| limit.saturating_sub(silent));
        let may_ask =
            awaited.prompt && cursor.prompt_at != Some(bytes) && self.unfinished().is_some();
        let prompt = may_ask.then(|| match FIRST_PROMPT_LOOK.saturating_sub(silent) {
            Duration::ZERO => PROMPT_LOOK,
            rest => rest,
        });
        silence.into_iter().chain(prompt).min().unwrap_or(Duration::MAX)
    }

    fn unfinished(self) -> Option<String> {
        self.job.read_log(|log| log.silent_partial(Selection::Both, Duration::ZERO))
    }
}

fn total_bytes(log: &Log) -> u64 {
    Stream::ALL.into_iter().map(|stream| log.ring().total_bytes(stream)).sum()
}

impl fmt::Display for EventCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.line.value())?;
        if let Some(bytes) = self.prompt_at {
            write!(f, "p{bytes}")?;
        }
        if let Some(bytes) = self.silence_at {
            write!(f, "s{bytes}")?;
        }
        f.write_str(if self.is_at_end { "e" } else { "" })
    }
}

/// The text is not the cursor of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it is not the cursor of an event, such as 120 or 120p4096")]
pub struct BadEventCursor;

impl FromStr for EventCursor {
    type Err = BadEventCursor;

    fn from_str(text: &str) -> Result<Self, BadEventCursor> {
        let mut rest = text;
        let line = take_number(&mut rest)?;
        if i64::try_from(line).is_err() {
            return Err(BadEventCursor);
        }
        let mut cursor = Self {
            line: LineNo::new(line),
            ..Self::default()
        };
        if let Some(after) = rest.strip_prefix('p') {
            rest = after;
            cursor.prompt_at = Some(take_number(&mut rest)?);
        }
        if let Some(after) = rest.strip_prefix('s') {
            rest = after;
            cursor.silence_at = Some(take_number(&mut rest)?);
        }
        cursor.is_at_end = rest == "e";
        (rest.is_empty() || cursor.is_at_end).then_some(cursor).ok_or(BadEventCursor)
    }
}

/// Removes the leading number from a text and returns it.
fn take_number(text: &mut &str) -> Result<u64, BadEventCursor> {
    let length = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at(length);
    *text = rest;
    digits.parse().map_err(|_| BadEventCursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_as_it_is_written() {
        for (text, prompt_at, silence_at, is_at_end) in [
            ("0", None, None, false),
            ("120p4096", Some(4096), None, false),
            ("120s7", None, Some(7), false),
            ("120p4096s4096e", Some(4096), Some(4096), true),
            ("9223372036854775807e", None, None, true),
        ] {
            let cursor: EventCursor = text.parse().unwrap();
            assert_eq!(
                (cursor.prompt_at, cursor.silence_at, cursor.is_at_end),
                (prompt_at, silence_at, is_at_end),
                "{text}"
            );
            assert_eq!(cursor.to_string(), text);
        }
        for text in [
            "",
            "e",
            "-1",
            "1x",
            "1p",
            "1s2p3",
            "1ee",
            "9223372036854775808",
        ] {
            assert_eq!(text.parse::<EventCursor>(), Err(BadEventCursor), "{text}");
        }
    }
}
