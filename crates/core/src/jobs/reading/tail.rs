//! Reads after a cursor for library users, with cursors that the server keeps.

use std::time::Duration;

use tokio::time::Instant;

use crate::jobs::{Error, LineNo, PageQuery, ReadableJob, ReturnedBecause, Tail, Wait};
use sshjobs_job::{CursorMove, CursorName, LONGEST_PATIENCE, Moved, Reached, TooManyCursors};
use sshjobs_output::clean;

/// Time limit for a line to arrive here after another process has shown it.
const REACH_TIME: Duration = Duration::from_secs(5);

impl ReadableJob {
    /// The highest line number that is valid as the cursor of a reader who is at `cursor` now.
    ///
    /// If another process records the job, a reader may have seen lines there that
    /// [`status`](crate::jobs::Job::status) does not include yet. Then this waits for the line at `cursor`, at
    /// most five seconds. Cancel safe.
    pub async fn newest_for(&self, cursor: u64) -> u64 {
        let newest = self.status().total_lines;
        if cursor <= newest {
            return newest;
        }
        match self.output().reached(LineNo::new(cursor), REACH_TIME).await {
            Reached::Here => self.status().total_lines,
            Reached::NeverShown if self.has_every_line() => self.status().total_lines,
            // Lines before the cursor must not be returned again.
            Reached::NeverShown | Reached::NotYet => cursor,
        }
    }

    /// Reads the lines after the query's cursor. Waits for news if there are none.
    ///
    /// Reading changes nothing: the same call returns the same answer until lines are evicted.
    /// Cancelling ends the wait.
    ///
    /// # Errors
    /// [`Error::TooSlow`] if a pattern takes too long for any result.
    pub async fn tail(&self, query: &PageQuery, wait: &Wait) -> Result<Tail, Error> {
        self.current_tail(query, wait).await
    }

    /// The lines after the query's cursor, with a status that says whether it may be out of date.
    async fn current_tail(&self, query: &PageQuery, wait: &Wait) -> Result<Tail, Error> {
        let tail = self.tail_or_row(query, wait).await?;
        let status = self.with_staleness(tail.status.clone());
        Ok(Tail { status, ..tail })
    }

    /// Reads the lines after the query's cursor. On a terminal, `until` also matches a row of the
    /// screen that has changed since the cursor: a full-screen program prints hardly any line.
    async fn tail_or_row(&self, query: &PageQuery, wait: &Wait) -> Result<Tail, Error> {
        let Some(until) = &wait.until else {
            return Ok(self.output().tail(query, wait).await?);
        };
        if !self.has_terminal() {
            return Ok(self.output().tail(query, wait).await?);
        }

        let after = self.stdout_before(query.cursor).max(wait.known_bytes);
        let at_once = Wait {
            patience: Duration::ZERO,
            until: None,
            quiet: None,
            ..wait.clone()
        };
        let output = self.output();
        let (mut tail, row) = tokio::select! {
            biased;
            tail = output.tail(query, wait) => {
                let tail = tail?;
                let is_line = matches!(tail.because, ReturnedBecause::Matched(Some(_)));
                // The unfinished line of a full-screen program may hold the whole screen. Report its
                // row instead.
                let row = if is_line { None } else { self.find_row(until, after).await?.row };
                (tail, row)
            }
            row = self.wait_for_row(until, after) => {
                (self.output().tail(query, &at_once).await?, Some(row?))
            }
        };
        if let Some(row) = row {
            tail.because = ReturnedBecause::MatchedRow(row.number);
            // A prompt ends with its row. What a full-screen program draws makes no line that could be read.
            tail.partial.retain(|(_, partial)| {
                clean(partial.as_bytes()).trim_end().ends_with(row.text.trim())
            });
        }
        Ok(tail)
    }

    /// Like [`tail`](Self::tail), with a named cursor that the server keeps for the caller and
    /// advances: no line is returned twice under one name. Also returns whether the job [awaits
    /// input](crate::jobs::Job::awaits_input), determined before the cursor moves.
    ///
    /// `from` first moves the cursor, which stays there even if the call is cancelled. Otherwise
    /// cancelling does not move the cursor, so no line is lost.
    ///
    /// # Errors
    /// Those of [`tail`](Self::tail), and [`Error::TooManyCursors`].
    pub async fn tail_as(
        &self,
        reader: &str,
        from: Option<LineNo>,
        query: &PageQuery,
        wait: &Wait,
    ) -> Result<(Tail, bool), Error> {
        let runner = self.door.runner();
        let name = CursorName {
            caller: self.door.caller().clone(),
            reader: reader.to_owned(),
        };
        if let Some(from) = from {
            let start = CursorMove {
                from: None,
                to: from,
            };
            if runner.move_cursor(self.output(), &name, start).await? == Moved::NoRoom {
                return Err(TooManyCursors.into());
            }
        }
        let deadline = Instant::now() + wait.patience.min(LONGEST_PATIENCE);
        loop {
            let cursor = runner.cursor(self.output(), &name).await?;
            // The caller's patience limits all rounds together, not each round.
            let patience = deadline.saturating_duration_since(Instant::now());
            let wait = Wait {
                patience,
                ..wait.clone()
            };
            let tail = self.current_tail(&PageQuery { cursor, ..*query }, &wait).await?;
            // Before the cursor moves: `awaits_input` may ask the host, and a call that is
            // cancelled meanwhile must not have moved the cursor.
            let awaits_input = self.awaits_input(query.selection).await;
            // The cursor moves last, so that a call that is cancelled before has consumed nothing.
            let step = CursorMove {
                from: Some(cursor),
                to: tail.page.last_line_no,
            };
            match runner.move_cursor(self.output(), &name, step).await? {
                Moved::Done => return Ok((tail, awaits_input)),
                // A call with the same name was faster, so we read on.
                Moved::WasElsewhere => {}
                Moved::NoRoom => return Err(TooManyCursors.into()),
            }
        }
    }
}
