//! The part of a job's output that `top` shows, and the requests for lines that are missing.

use std::collections::VecDeque;

use sshjobs_wire::{Error, LineRecord, ReadReply, Screen, Standing, TailReply};

/// A part of a job's output: as many lines as fit on the screen.
#[derive(Debug, Default)]
pub(super) struct VisibleOutput {
    job: Option<String>,
    at: At,
    rows: u64,
    /// Columns scrolled to the left.
    pub(super) shift: usize,
    pub(super) lines: VecDeque<LineRecord>,
    /// Unfinished last lines.
    pub(super) partial: Vec<String>,
    pub(super) standing: Option<Standing>,
    pub(super) total: u64,
    pub(super) awaits_input: bool,
    /// Lines evicted between the last two pages.
    pub(super) dropped: u64,
    pub(super) error: Option<String>,
    /// Line numbers found by the last search.
    pub(super) found: Vec<u64>,
    /// Whether the job's screen is shown instead of its lines.
    pub(super) shows_screen: bool,
    /// The job's screen.
    pub(super) screen: Option<Screen>,
    /// Whether no more output will follow.
    is_complete: bool,
    /// Whether the current request for lines has been answered.
    has_reply: bool,
    /// Changes when other lines are needed. Answers to older requests are ignored.
    wish: u64,
}

/// Position of the lines shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum At {
    /// At the end, following new output.
    #[default]
    End,
    /// From this line on.
    Line(u64),
}

/// A request for lines of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) number: u64,
    pub(super) job: String,
    pub(super) rows: u64,
    /// The line after which to start.
    pub(super) since: u64,
    /// Whether to return the last lines instead of the first, if there are too many.
    pub(super) is_at_end: bool,
    /// Whether to wait for news.
    pub(super) waits: bool,
    /// Whether the job's screen is needed, and not its lines.
    pub(super) is_screen: bool,
    /// Version of the screen that is shown.
    pub(super) screen_version: Option<u64>,
}

/// The reply to a request.
#[derive(Debug)]
pub(super) enum Arrived {
    /// Lines.
    Lines(Box<TailReply>),
    /// A screen.
    Screen(Box<ReadReply>),
}

impl VisibleOutput {
    /// Shows another job from its end, or its screen, or no job.
    pub(super) fn of(&mut self, job: Option<&str>, shows_screen: bool) {
        if self.job.as_deref() != job {
            let rows = self.rows;
            let wish = self.wish + 1;
            *self = Self {
                job: job.map(str::to_owned),
                rows,
                wish,
                shows_screen,
                ..Self::default()
            };
        }
    }

    /// Shows the job's screen instead of its lines, or the other way round.
    pub(super) fn toggle_screen(&mut self) {
        self.shows_screen = !self.shows_screen;
        self.screen = None;
        self.request_again();
    }

    pub(super) fn job(&self) -> Option<&str> {
        self.job.as_deref()
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.at == At::End
    }

    /// The next request. `None` if everything needed has arrived.
    pub(super) fn wish(&self) -> Option<Wish> {
        if self.rows == 0 || self.is_complete {
            return None;
        }
        let job = self.job.clone()?;
        if self.shows_screen {
            return Some(Wish {
                number: self.wish,
                job,
                rows: self.rows,
                since: 0,
                is_at_end: true,
                waits: self.screen.is_some(),
                is_screen: true,
                screen_version: self.screen.as_ref().map(|screen| screen.version),
            });
        }
        let newest = self.lines.back().map_or(0, |line| line.line_no);
        let (since, is_at_end) = match self.at {
            At::End => (newest, true),
            At::Line(_) if !self.lines.is_empty() => return None,
            At::Line(first) => (first.saturating_sub(1), false),
        };
        // The first request returns at once: a silent job shows its state and its unfinished line.
        let waits = is_at_end && self.has_reply;
        Some(Wish {
            number: self.wish,
            job,
            rows: self.rows,
            since,
            is_at_end,
            waits,
            is_screen: false,
            screen_version: None,
        })
    }

    /// The number of the newest request.
    pub(super) fn wish_number(&self) -> u64 {
        self.wish
    }

    /// Applies the answer to a request.
    pub(super) fn take(&mut self, wish: &Wish, reply: Result<Arrived, Error>) {
        if wish.number != self.wish {
            return;
        }
        match reply {
            Ok(Arrived::Lines(reply)) => self.take_lines(*reply),
            Ok(Arrived::Screen(reply)) => self.take_screen(*reply),
            Err(error) => self.error = Some(error.message),
        }
    }

    fn take_screen(&mut self, reply: ReadReply) {
        self.error = None;
        self.awaits_input = reply.awaiting_input;
        self.standing = Some(reply.standing);
        self.screen = reply.screen;
        self.is_complete = !reply.still_running;
    }

    fn take_lines(&mut self, reply: TailReply) {
        self.error = None;
        self.has_reply = true;
        self.dropped = reply.dropped_lines;
        let records = reply.records.unwrap_or_default();
        // There is a gap, so the lines before it must not appear next to the new ones.
        if reply.skipped_lines > 0 || reply.dropped_lines > 0 {
            self.lines.clear();
        }
        self.lines.extend(records);
        let surplus = self
            .lines
            .len()
            .saturating_sub(usize::try_from(self.rows).unwrap_or(usize::MAX));
        if self.at == At::End {
            self.lines.drain(..surplus);
        }
        let partial = reply.partial.unwrap_or_default();
        self.partial = [partial.stdout, partial.stderr].into_iter().flatten().collect();
        self.total = reply.total_lines;
        self.awaits_input = reply.awaiting_input;
        self.standing = Some(reply.standing);
        self.is_complete = self.at == At::End && !reply.still_running;
    }

    /// Sets the number of rows.
    pub(super) fn resize(&mut self, rows: u16) {
        if self.rows != u64::from(rows) {
            self.rows = u64::from(rows);
            self.request_again();
        }
    }

    /// Scrolls by this many lines. At the end it starts to follow. A screen does not scroll: its
    /// lines are shown instead.
    pub(super) fn scroll(&mut self, lines: i64) {
        if self.shows_screen {
            self.toggle_screen();
        }
        let first = match self.at {
            At::Line(first) => first,
            At::End => self.lines.front().map_or(1, |line| line.line_no),
        };
        let first = first.saturating_add_signed(lines).max(1);
        self.show_from(first);
    }

    /// Number of lines to scroll by a page: one line stays visible.
    pub(super) fn page(&self) -> i64 {
        i64::try_from(self.rows.saturating_sub(1).max(1)).unwrap_or(1)
    }

    pub(super) fn scroll_to_start(&mut self) {
        self.show_from(1);
    }

    pub(super) fn scroll_to_end(&mut self) {
        if self.at != At::End {
            self.at = At::End;
            self.request_again();
        }
    }

    fn show_from(&mut self, first: u64) {
        if first.saturating_add(self.rows) > self.total {
            return self.scroll_to_end();
        }
        if self.at != At::Line(first) {
            self.at = At::Line(first);
            self.request_again();
        }
    }

    /// Applies the lines found by a search, and shows the newest.
    pub(super) fn take_found(&mut self, found: Vec<u64>) {
        self.shows_screen = false;
        self.found = found;
        if let Some(last) = self.found.last().copied() {
            self.show_around(last);
        }
    }

    /// Shows the next found line above (older) or below. Returns false if there is none.
    pub(super) fn scroll_to_found(&mut self, is_older: bool) -> bool {
        let middle = self.middle();
        let next = if is_older {
            self.found.iter().rev().find(|line| **line < middle)
        } else {
            self.found.iter().find(|line| **line > middle)
        };
        let next = next.copied();
        next.into_iter().for_each(|line| self.show_around(line));
        next.is_some()
    }

    /// Which of the found lines is shown, counted from the newest, and their number.
    pub(super) fn match_position(&self) -> Option<String> {
        let middle = self.middle();
        let index = self.found.iter().position(|line| *line >= middle)?;
        Some(format!(
            "match {} of {}",
            self.found.len() - index,
            self.found.len()
        ))
    }

    /// The line shown by the last search.
    fn middle(&self) -> u64 {
        match self.at {
            At::Line(first) => first + self.rows / 2,
            At::End => self.total.saturating_add(1),
        }
    }

    fn show_around(&mut self, line: u64) {
        // Also near the end, so that the found line is in the middle.
        let first = line.saturating_sub(self.rows / 2).max(1);
        if self.at != At::Line(first) {
            self.at = At::Line(first);
            self.request_again();
        }
    }

    fn request_again(&mut self) {
        self.wish += 1;
        self.is_complete = false;
        self.has_reply = false;
        self.lines.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sshjobs_wire::{Because, JobState, StreamName};

    fn reply(numbers: std::ops::RangeInclusive<u64>, total: u64, still_running: bool) -> Arrived {
        let record = |line_no| LineRecord {
            line_no,
            member: None,
            stream: StreamName::Stdout,
            ts: 0,
            time: String::new(),
            text: format!("line {line_no}"),
            spans: Vec::new(),
            continuation: false,
        };
        let state = if still_running {
            JobState::Running
        } else {
            JobState::Exited
        };
        let standing = Standing {
            state,
            exit_status: None,
            exit_signal: None,
            reason: None,
            disconnected_ms: None,
            unstored: None,
            stale: false,
        };
        Arrived::Lines(Box::new(TailReply {
            lines: None,
            first_line_no: Some(*numbers.start()),
            last_line_no: *numbers.end(),
            records: Some(numbers.map(record).collect()),
            stderr_lines: Vec::new(),
            continuation_lines: Vec::new(),
            still_running,
            standing,
            buffer_truncated: false,
            dropped_lines: 0,
            skipped_lines: 0,
            first_available_line_no: 1,
            total_lines: total,
            has_more: false,
            partial: None,
            awaiting_input: false,
            silent_ms: 0,
            returned_because: Because::Lines,
            matched_line_no: None,
            screen: None,
            matched_row: None,
            jobs: Vec::new(),
            cursors: std::collections::BTreeMap::new(),
            clamped: Vec::new(),
        }))
    }

    /// The lines shown.
    fn shown(output: &VisibleOutput) -> Vec<u64> {
        output.lines.iter().map(|line| line.line_no).collect()
    }

    fn of_a_hundred_lines() -> VisibleOutput {
        let mut output = VisibleOutput::default();
        output.resize(3);
        output.of(Some("a"), false);
        output.take(&output.wish().unwrap(), Ok(reply(98..=100, 100, true)));
        output
    }

    #[test]
    fn the_end_is_followed_line_by_line() {
        let mut output = of_a_hundred_lines();
        assert_eq!(shown(&output), [98, 99, 100]);
        let wish = output.wish().unwrap();
        assert!(wish.waits && wish.since == 100);
        output.take(&wish, Ok(reply(101..=101, 101, false)));
        assert_eq!(shown(&output), [99, 100, 101]);
        assert_eq!(output.wish(), None, "an ended job has no news");
    }

    #[test]
    fn lines_are_requested_without_a_wait_after_the_screen() {
        let mut output = of_a_hundred_lines();
        output.toggle_screen();
        output.toggle_screen();
        assert!(!output.wish().unwrap().waits);
    }

    #[test]
    fn who_scrolls_up_stays_there_until_the_end_is_reached_again() {
        let mut output = of_a_hundred_lines();
        output.scroll(-2);
        let wish = output.wish().unwrap();
        assert_eq!((wish.since, wish.is_at_end, wish.waits), (95, false, false));
        output.take(&wish, Ok(reply(96..=98, 100, true)));
        assert_eq!((shown(&output), output.wish()), (vec![96, 97, 98], None));
        output.scroll(output.page());
        assert!(output.is_at_end());
        output.scroll_to_start();
        assert_eq!(output.wish().unwrap().since, 0);
        output.scroll(-5);
        assert_eq!(output.wish().unwrap().since, 0);
    }

    #[test]
    fn an_answer_to_an_older_wish_is_not_shown() {
        let mut output = of_a_hundred_lines();
        let old = output.wish().unwrap();
        output.of(Some("b"), false);
        output.take(&old, Ok(reply(101..=103, 103, true)));
        assert!(output.lines.is_empty());
    }

    #[test]
    fn found_lines_are_gone_through_both_ways() {
        let mut output = of_a_hundred_lines();
        output.take_found(vec![10, 50, 99]);
        assert_eq!(output.wish().unwrap().since, 97, "99 is in the middle");
        assert!(output.scroll_to_found(true));
        assert_eq!(output.wish().unwrap().since, 48);
        assert!(output.scroll_to_found(true) && !output.scroll_to_found(true));
        assert!(output.scroll_to_found(false));
        assert_eq!(output.wish().unwrap().since, 48);
    }
}
