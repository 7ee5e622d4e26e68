//! Reads after a cursor, and waits for news. However a wait ends, the log has the answer.

use std::time::Duration;

use regex::Regex;
use secrecy::{ExposeSecret, SecretString};
use tokio::time::{Instant, sleep_until};

use super::matching::{Matching, TooSlow};
use super::output_reader::OutputReader;
use super::read::start_of_last;
use crate::log::{Log, Status};
use crate::{Coverage, Job, LineRange, OutputSpan};
use sshjobs_output::{
    Keep, Line, LineMatch, LineNo, Measure, Page, PageQuery, Render, Ring, Scan, Stream, clean,
};

/// When a [`tail`](crate::Job::tail) that finds no news returns. The end of the job always
/// ends the wait.
#[derive(Clone, Debug, Default)]
pub struct Wait {
    /// Longest wait.
    pub patience: Duration,
    /// Wait until a line matches, or the last part of an unfinished line does, instead of for the
    /// first new line.
    pub until: Option<Regex>,
    /// Return, and wait for, only lines that match.
    pub filter: Option<Regex>,
    /// Wait until no byte has arrived for this long, instead of for the first new line. The time
    /// counts from the newest byte, or from the call if the output has nothing new for the caller.
    pub quiet: Option<Duration>,
    /// Total bytes of output that the caller knows, also after its cursor: an unfinished line, such
    /// as a prompt that the caller has answered, is then not new.
    pub known_bytes: u64,
    /// From when silence counts.
    pub silence_from: SilenceFrom,
}

/// The moment from which silence counts as the end of an answer.
#[derive(Clone, Debug, Default)]
pub enum SilenceFrom {
    /// From the call, if nothing is new.
    #[default]
    Call,
    /// Once there is more than [`Wait::known_bytes`].
    News,
    /// Once the output after the cursor is not the beginning of this text: the prompt that the caller has answered, and what
    /// a terminal repeats of the answer.
    MoreThan(SecretString),
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReturnedBecause {
    /// There are lines, or a full page of them while waiting for something else.
    Lines,
    /// The pattern matched, in this line or in the unfinished one.
    Matched(Option<LineNo>),
    /// The pattern matched in this row of the terminal's screen. The top one is 1.
    MatchedRow(u32),
    /// The output has been silent for the requested time.
    Quiet,
    /// The job has ended, and this page reaches its end.
    Ended,
    /// The time limit was reached.
    Timeout,
}

impl ReturnedBecause {
    /// The row of the screen that matched, if one did.
    pub fn matched_row(self) -> Option<u32> {
        if let Self::MatchedRow(row) = self {
            Some(row)
        } else {
            None
        }
    }

    /// The line that matched, if one did.
    pub fn matched_line(self) -> Option<LineNo> {
        if let Self::Matched(line) = self {
            line
        } else {
            None
        }
    }
}

/// The result of a tail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tail {
    /// The lines after the cursor.
    pub page: Page,
    /// The unfinished last lines of the selected streams, rendered. They are shown without being
    /// consumed.
    pub partial: Vec<(Stream, String)>,
    /// The status of the job at that moment.
    pub status: Status,
    /// Why the wait ended.
    pub because: ReturnedBecause,
}

/// A reader that waits for news.
struct Waiter<'a> {
    query: &'a PageQuery,
    wait: &'a Wait,
    called: Instant,
    deadline: Instant,
    /// When it stops matching available output. May be later than `deadline`, so that a call
    /// without a wait also makes progress.
    match_until: Instant,
    scan: Scan,
    matching: Matching<2>,
    /// Bytes of output when the unfinished lines were last matched.
    seen: Option<u64>,
    matched: Option<Option<LineNo>>,
    /// The matching budget is spent, so no more output is matched.
    spent: bool,
}

enum TailDecision {
    Answer(Box<Tail>),
    /// There is more output to match.
    More,
    /// The answer must be read from the store.
    Stored,
    /// Nothing to return before the log changes or this moment.
    Nothing {
        wake_at: Instant,
    },
}

/// Longest patience that counts.
pub const LONGEST_PATIENCE: Duration = Duration::from_secs(365 * 24 * 3600);

/// Minimum time for matching available output, however short the wait is.
const MATCH_AT_LEAST: Duration = Duration::from_millis(500);

/// Longest part of an unfinished line that is matched and shown, in bytes: its end.
pub const PARTIAL_SHOWN: usize = 2048;

/// Bytes of a stored piece that are matched together.
const STORED_PIECE: usize = 1 << 20;

impl Job {
    /// Reads the lines after the query's cursor. Waits for news if there are none.
    ///
    /// Reading changes nothing. Dropping the future ends the wait and loses nothing. If patterns
    /// take too long, returns the matches so far, or an error if there are none.
    pub async fn tail(&self, query: &PageQuery, wait: &Wait) -> Result<Tail, TooSlow> {
        let mut waiter = Waiter::new(query, wait);
        let mut log = self.watch();
        let mut stored = None;
        loop {
            // From here on no change is missed.
            log.mark_unchanged();
            waiter.match_new_output(self).await?;
            let coverage = self.coverage();
            let decision =
                self.read_log(|log| waiter.decide(log, stored.take(), coverage.as_ref()));
            let wake_at = match decision {
                TailDecision::Answer(mut tail) => {
                    tail.status = self.with_troubles(tail.status);
                    return Ok(*tail);
                }
                TailDecision::More => continue,
                TailDecision::Stored => {
                    stored = Some(self.stored_page(query).await);
                    continue;
                }
                TailDecision::Nothing { wake_at } => wake_at,
            };
            tokio::select! {
                changed = log.changed() => changed.expect("a job owns its log"),
                () = sleep_until(wake_at) => {}
            }
        }
    }
}

impl<'a> Waiter<'a> {
    fn new(query: &'a PageQuery, wait: &'a Wait) -> Self {
        let called = Instant::now();
        let matching = Matching::new([wait.filter.clone(), wait.until.clone()]);
        let scan = Scan::new(*query, matching.has_patterns());
        // Bounded, because the sum must not overflow.
        let deadline = called + wait.patience.min(LONGEST_PATIENCE);
        let match_until = deadline.max(called + MATCH_AT_LEAST);
        Self {
            query,
            wait,
            called,
            deadline,
            match_until,
            scan,
            matching,
            seen: None,
            matched: None,
            spent: false,
        }
    }

    /// Matches the patterns in new output. The log is not locked meanwhile.
    async fn match_new_output(&mut self, job: &Job) -> Result<(), TooSlow> {
        let mut reader = OutputReader::new(job);
        while self.matching.has_patterns() && !self.spent {
            let fetching = reader.read(
                OutputSpan::after(self.scan.cursor(), self.query.selection),
                |ring: &Ring| ring.byte_count() > STORED_PIECE,
                |ring| self.scan.fetch(ring),
            );
            let Some(piece) = fetching.await else { break };
            let before = self.scan.cursor();
            let texts = piece.iter().map(|fetched| self.matched_text(job, &fetched.line)).collect();
            let found = self.matching.match_texts(texts).await?;
            // The result is shorter only if the budget is spent. The other lines stay unmatched.
            self.spent = found.len() < piece.len();
            for (fetched, [filter, until]) in piece.into_iter().zip(found) {
                let looked = LineMatch {
                    is_wanted: filter.unwrap_or(true),
                    is_last: until.unwrap_or(false),
                };
                if !self.scan.take(fetched, looked) {
                    break;
                }
            }
            // Without progress, the next call would spend its budget on the same line.
            if self.spent && self.scan.cursor() == self.query.cursor && before == self.query.cursor
            {
                return Err(self.matching.too_slow());
            }
            // Output may arrive faster than it is matched. The answer then has `has_more`.
            if Instant::now() >= self.match_until {
                break;
            }
        }
        self.matched = self.scan.last().map(Some);
        if self.wait.until.is_some() && !self.scan.is_over() && !self.spent {
            self.match_partials(job).await?;
        }
        Ok(())
    }

    /// The text of a line in which patterns are matched: without control sequences, however it is
    /// rendered for the reader.
    fn matched_text(&self, job: &Job, line: &Line) -> String {
        let text = job.display(line);
        match self.query.render {
            Render::Clean => text,
            Render::Raw => clean(text.as_bytes()).into_owned(),
        }
    }

    /// An unfinished line may match, too: it may be a prompt.
    async fn match_partials(&mut self, job: &Job) -> Result<(), TooSlow> {
        let (total, texts) = job.read_log(|log| {
            let total = log.ring().total();
            // An unfinished line changes only with new bytes, so each state is matched once.
            let partials = if self.seen == Some(total) {
                Vec::new()
            } else {
                partials(log, self.query)
            };
            (
                total,
                partials
                    .into_iter()
                    .map(|(_, text)| clean(shown_end(&text).as_bytes()).into_owned())
                    .collect::<Vec<_>>(),
            )
        });
        self.seen = Some(total);
        if !texts.is_empty() {
            let found = self.matching.match_texts(texts).await?;
            if found.iter().any(|[_, until]| *until == Some(true)) {
                self.matched = Some(None);
            }
        }
        Ok(())
    }

    /// Decides whether to return now, and with which answer.
    ///
    /// Called under the lock of the log, after [`match_new_output`](Self::match_new_output). The
    /// log may have grown in between. Then the patterns were not matched in the newest output, and
    /// the result is [`TailDecision::More`] while there is time.
    ///
    /// The first step decides whether to return, the second why. The strongest reason wins: a
    /// match, the end, lines, silence. The time limit is last, so that a call with an answer does
    /// not report a timeout.
    ///
    /// If the ring has evicted the lines after the cursor, the page is the `stored` one.
    fn decide(
        &mut self,
        log: &Log,
        stored: Option<Page>,
        coverage: Option<&Coverage>,
    ) -> TailDecision {
        let now = Instant::now();
        let is_new =
            log.ring().lines_after(self.query.cursor, self.query.selection).next().is_some();
        let has_patterns = self.matching.has_patterns();
        let has_line = if has_patterns {
            self.scan.has_lines()
        } else {
            is_new
        };
        let quiet_at = self.quiet_at(log, is_new);
        let quiet = quiet_at.is_some_and(|at| now >= at);
        let plain = self.wait.until.is_none() && self.wait.quiet.is_none();
        let over = self.matched.is_some()
            || self.scan.is_over()
            || self.spent
            || (self.wait.quiet.is_some() && !has_patterns && self.fills_page(log.ring()));
        let due =
            over || log.outcome().is_some() || now >= self.deadline || quiet || (plain && has_line);
        if !due {
            return TailDecision::Nothing {
                wake_at: quiet_at.unwrap_or(self.deadline).min(self.deadline),
            };
        }
        // With patterns, `match_new_output` has already read from the store.
        let is_stored_only = !has_patterns && coverage.is_some() && !self.is_in_ring(log.ring());
        if is_stored_only && stored.is_none() {
            return TailDecision::Stored;
        }
        let page = (!has_patterns).then(|| {
            let mut page = stored.unwrap_or_else(|| self.read_page(log, coverage));
            // The stored page was read before this lock, so lines may have arrived since.
            let mut newer = log.ring().lines_after(page.last_line_no, self.query.selection);
            page.has_more |= newer.next().is_some();
            page
        });
        let has_more = page.as_ref().map_or_else(|| self.has_more(log), |page| page.has_more);
        if has_patterns && has_more && !over && now < self.deadline {
            return TailDecision::More;
        }
        let because = if let Some(matched) = self.matched {
            ReturnedBecause::Matched(matched)
        } else if log.outcome().is_some() && !has_more {
            ReturnedBecause::Ended
        } else if has_more || (plain && has_line) {
            ReturnedBecause::Lines
        } else if quiet {
            ReturnedBecause::Quiet
        } else {
            ReturnedBecause::Timeout
        };
        TailDecision::Answer(Box::new(Tail {
            page: page.unwrap_or_else(|| Page {
                has_more,
                ..self.scan.take_page(log.ring())
            }),
            partial: partials(log, self.query),
            status: log.status(coverage),
            because,
        }))
    }

    /// Whether there are more lines than a page has room for, so that to wait for silence would not add to it.
    fn fills_page(&self, ring: &Ring) -> bool {
        let PageQuery {
            cursor,
            selection,
            max_lines,
            max_bytes,
            line_bytes,
            keep,
            ..
        } = *self.query;
        if keep != Keep::First {
            return false;
        }
        let mut lines = 0;
        let mut bytes = 0;
        // Reading a page is slower than counting, and most pages are far from full.
        let may_be_full = ring.lines_after(cursor, selection).any(|line| {
            lines += 1;
            bytes += line.text.len() + line_bytes;
            lines > max_lines || bytes > max_bytes
        });
        may_be_full && Page::read(ring, self.query).has_more
    }

    /// Whether the ring has all lines that the query asks for.
    fn is_in_ring(&self, ring: &Ring) -> bool {
        let selection = self.query.selection;
        let wanted = match self.query.keep {
            Keep::First => OutputSpan::after(self.query.cursor, selection),
            Keep::Last => {
                OutputSpan::at(start_of_last(ring, self.query), Measure::Lines, selection)
            }
        };
        wanted.is_held_by(ring)
    }

    /// The page from the ring. Lines that it skips are not lost if they are stored.
    fn read_page(&self, log: &Log, coverage: Option<&Coverage>) -> Page {
        let mut page = Page::read(log.ring(), self.query);
        if self.query.keep == Keep::Last
            && let Some(coverage) = coverage
        {
            let between = LineRange {
                after: self.query.cursor,
                last: page.last_line_no,
            };
            let missing = coverage.missing_between(log.ring(), between).min(page.dropped_lines);
            page.skipped_lines += page.dropped_lines - missing;
            page.dropped_lines = missing;
        }
        page
    }

    /// Whether there are lines that the patterns were not matched in, including stored ones.
    fn has_more(&self, log: &Log) -> bool {
        let ring = log.ring();
        let rest = OutputSpan::after(self.scan.cursor(), self.query.selection);
        !rest.is_held_by(ring) || self.scan.has_more(ring)
    }

    fn quiet_at(&self, log: &Log, has_line: bool) -> Option<Instant> {
        let quiet = self.wait.quiet?;
        let has_begun = match &self.wait.silence_from {
            SilenceFrom::Call => true,
            SilenceFrom::News => log.ring().total() > self.wait.known_bytes,
            SilenceFrom::MoreThan(text) => !self.begins(text.expose_secret(), log.ring()),
        };
        if !has_begun {
            return None;
        }
        let has_partial = Stream::ALL.into_iter().any(|stream| {
            self.query.selection.contains(stream) && !log.ring().partial(stream).is_empty()
        });
        let is_new = (has_line || has_partial) && log.ring().total() > self.wait.known_bytes;
        let since = if is_new { log.last_output() } else { None };
        Some(since.unwrap_or(self.called) + quiet.min(LONGEST_PATIENCE))
    }

    /// Whether the visible characters of the output after the cursor are no more than the first of those of `text`. A terminal
    /// breaks lines, and moves the cursor, where it likes.
    fn begins(&self, text: &str, ring: &Ring) -> bool {
        let PageQuery {
            cursor, selection, ..
        } = *self.query;
        let mut rest = text.chars().filter(|c| is_visible(*c));
        let mut is_next = |printed: &str| {
            printed.chars().filter(|c| is_visible(*c)).all(|c| rest.next() == Some(c))
        };
        ring.lines_after(cursor, selection)
            .all(|line| is_next(&line.render(Render::Clean)))
            && Stream::ALL
                .into_iter()
                .filter(|stream| selection.contains(*stream))
                .all(|stream| is_next(&ring.partial_text(stream, Render::Clean)))
    }
}

fn is_visible(c: char) -> bool {
    !c.is_whitespace() && !c.is_control()
}

/// The end of an unfinished line, which has the information: a prompt, or the state of a progress
/// bar.
pub fn shown_end(text: &str) -> &str {
    let cut = text.len().saturating_sub(PARTIAL_SHOWN);
    // The cut may be inside a character. `get` returns `None` until the next boundary.
    (cut..=text.len()).find_map(|at| text.get(at..)).unwrap_or_default()
}

fn partials(log: &Log, query: &PageQuery) -> Vec<(Stream, String)> {
    Stream::ALL
        .into_iter()
        .filter(|stream: &Stream| query.selection.contains(*stream))
        .map(|stream| (stream, log.ring().partial_text(stream, query.render)))
        .filter(|(_, text)| !text.is_empty())
        .collect()
}

impl Tail {
    /// False only when the job has ended, everything is drained, and this page reaches the end.
    pub fn still_running(&self) -> bool {
        self.status.ended_at.is_none() || self.page.has_more
    }
}

#[cfg(test)]
mod tests;
