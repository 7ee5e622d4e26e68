use tokio::time::Instant;

use super::door::Look;
use super::{Error, Job, LineNo, PageQuery, Tail, Wait};

impl Job {
    /// Reads the lines behind the query's cursor; waits for news when there is none.
    ///
    /// Reading changes nothing: the same call gives the same answer until lines are evicted. Cancelling ends the wait.
    ///
    /// # Errors
    /// [`Error::TooSlow`] when a pattern takes too long to tell anything.
    pub async fn tail(&self, query: &PageQuery, wait: &Wait) -> Result<Tail, Error> {
        self.look(Look::Tail);
        Ok(self.job.tail(query, wait).await?)
    }

    /// The same behind a cursor that is kept here under the caller's and the reader's name, and moved on: no line is given out
    /// twice under one name. Also tells whether the job [awaits input](Self::awaits_input), found out before the cursor moves.
    ///
    /// With `from` the cursor is put there at once, and stays there. Cancelling moves it no further, so no line is lost.
    ///
    /// # Errors
    /// As [`tail`](Self::tail), and [`Error::TooManyCursors`].
    pub async fn tail_as(
        &self,
        reader: &str,
        from: Option<LineNo>,
        (query, wait): (&PageQuery, &Wait),
    ) -> Result<(Tail, bool), Error> {
        self.look(Look::Tail);
        let (name, cursors) = ((self.door.caller().clone(), reader.to_owned()), &self.job.cursors);
        if let Some(from) = from {
            cursors.put(&name, from)?;
        }
        let deadline = Instant::now() + wait.patience;
        loop {
            let cursor = cursors.cursor(&name)?;
            let patience = deadline.saturating_duration_since(Instant::now());
            let wait = Wait { patience, ..wait.clone() };
            let tail = self.job.tail(&PageQuery { cursor, ..*query }, &wait).await?;
            let awaits_input = self.awaits_input(query.selection).await;
            // The cursor moves last: a call that is cancelled has taken nothing. One with the same name may have been
            // faster; then it is for us to read on.
            if cursors.advance(&name, cursor, tail.page.last_line_no)? {
                return Ok((tail, awaits_input));
            }
        }
    }
}
