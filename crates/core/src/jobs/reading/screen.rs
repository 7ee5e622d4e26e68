//! Reads the screen of a job's terminal, and waits for what it shows.

use std::time::Duration;

use regex::Regex;
use tokio::time::Instant;

use crate::jobs::{Error, Follow, LineNo, ReadableJob, ScreenView, Selection, Stream};
use sshjobs_job::{DrawnUpTo, LONGEST_PATIENCE, Matching, TooSlow};
use sshjobs_output::Measure;

/// When [`ReadableJob::screen`] returns. The end of the job ends every wait.
#[derive(Clone, Debug, Default)]
pub struct ScreenWait {
    /// Longest wait.
    pub patience: Duration,
    /// Wait for a screen that is newer than this version.
    pub newer_than: Option<u64>,
    /// Wait until nothing was printed for this long. The time counts from the call, or from the
    /// newest output after it.
    pub quiet: Option<Duration>,
    /// Wait until a row matches.
    pub until: Option<Regex>,
}

impl ReadableJob {
    /// The screen of the job's terminal, also after the job's end. It is computed from the kept
    /// output. Cancel safe.
    ///
    /// # Errors
    /// [`Error::NoTerminal`]; [`Error::TooSlow`] if the pattern takes too long.
    pub async fn screen(&self, wait: &ScreenWait) -> Result<ScreenView, Error> {
        self.check_terminal()?;
        let runner = self.door.runner();
        let screen = runner.screen(self.output());
        let called = Instant::now();
        let deadline = called + wait.patience.min(LONGEST_PATIENCE);
        loop {
            let is_over = self.is_over();
            let (view, drawn) = {
                let mut screen = screen.lock().await;
                screen.draw_all(&self.output()).await;
                (screen.view(), screen.drawn())
            };
            let last_output = self.output().read_log(|log| log.last_output());
            let silent_since = last_output.map_or(called, |at| at.max(called));
            let quiet_at = wait.quiet.map(|quiet| silent_since + quiet.min(LONGEST_PATIENCE));
            let now = Instant::now();
            if is_over || now >= deadline {
                return Ok(view);
            }
            let is_newer = wait.newer_than.is_none_or(|version| view.version > version);
            let is_quiet = quiet_at.is_none_or(|at| now >= at);
            if is_newer && is_quiet && wait.shows(&view).await? {
                return Ok(view);
            }
            // Once it is quiet, only output can change the answer.
            let wake_at = quiet_at.filter(|at| *at > now).unwrap_or(deadline).min(deadline);
            self.output().wait_for_drawing(wake_at - now, drawn).await;
        }
    }

    /// Follows a terminal job from now on, for a second terminal: first the bytes that make it show
    /// the job's screen, then the job's bytes.
    ///
    /// # Errors
    /// [`Error::NoTerminal`].
    pub async fn follow_screen(&self) -> Result<(Vec<u8>, Follow), Error> {
        self.check_terminal()?;
        let runner = self.door.runner();
        let screen = runner.screen(self.output());
        let mut screen = screen.lock().await;
        screen.draw_all(&self.output()).await;
        Ok((screen.redraw(), self.follow_after(screen.continues_at())))
    }

    fn check_terminal(&self) -> Result<(), Error> {
        if self.has_terminal() {
            Ok(())
        } else {
            Err(Error::NoTerminal(self.job.id().clone()))
        }
    }

    /// Waits for a row that [matches](Self::find_row). Dropping the future ends the wait.
    pub(super) async fn wait_for_row(
        &self,
        until: &Regex,
        after: u64,
    ) -> Result<MatchedRow, TooSlow> {
        loop {
            let found = self.find_row(until, after).await?;
            if let Some(row) = found.row {
                return Ok(row);
            }
            if self.is_over() {
                return std::future::pending().await;
            }
            self.output().wait_for_drawing(LONGEST_PATIENCE, found.drawn).await;
        }
    }

    /// Finds the first matching row that has changed since the stdout position `after`.
    pub(super) async fn find_row(&self, until: &Regex, after: u64) -> Result<FoundRow, TooSlow> {
        let screen = self.door.runner().screen(self.output());
        let (view, drawn) = {
            let mut screen = screen.lock().await;
            // Draw up to `after` first, so that rows drawn later count as changed.
            screen.draw_until(&self.output(), after).await;
            screen.draw_all(&self.output()).await;
            (screen.view(), screen.drawn())
        };
        let changed = (1..).zip(view.rows).filter(|(_, row)| row.changed_at > after);
        let rows: Vec<MatchedRow> = changed
            .map(|(number, row)| MatchedRow {
                number,
                text: row.text,
            })
            .collect();
        let texts = rows.iter().map(|row| row.text.clone()).collect();
        let index = first_match(until, texts).await?;
        Ok(FoundRow {
            row: index.and_then(|index| rows.into_iter().nth(index)),
            drawn,
        })
    }

    /// Bytes of stdout up to a line, which a reader with this cursor has read.
    pub(super) fn stdout_before(&self, cursor: LineNo) -> u64 {
        let stdout = Selection::Only(Stream::Stdout);
        self.output().read_log(|log| log.ring().extent(cursor, stdout, Measure::Bytes))
    }
}

/// A row of a screen that matches a pattern.
pub(super) struct MatchedRow {
    /// Its number. The top one is 1.
    pub(super) number: u32,
    /// Its text.
    pub(super) text: String,
}

/// Result of a search for a row, with the state of the screen that was searched.
pub(super) struct FoundRow {
    /// The row, if one matches.
    pub(super) row: Option<MatchedRow>,
    drawn: DrawnUpTo,
}

impl ScreenWait {
    /// Whether a row of the screen matches, if one must.
    async fn shows(&self, view: &ScreenView) -> Result<bool, TooSlow> {
        let Some(until) = &self.until else { return Ok(true) };
        let texts = view.rows.iter().map(|row| row.text.clone()).collect();
        Ok(first_match(until, texts).await?.is_some())
    }
}

/// The index of the first text that matches.
async fn first_match(pattern: &Regex, texts: Vec<String>) -> Result<Option<usize>, TooSlow> {
    let mut matching = Matching::new([Some(pattern.clone())]);
    let count = texts.len();
    let found = matching.match_texts(texts).await?;
    if found.len() < count {
        return Err(matching.too_slow());
    }
    Ok(found.iter().position(|[is_match]| *is_match == Some(true)))
}
