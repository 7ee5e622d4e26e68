use regex::Regex;

use super::door::Verb;
use super::{Error, Job, LineNo, Match, SearchQuery};
use crate::job::Matching;
use crate::output::Search;

/// What a search has found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The matches, oldest first.
    pub matches: Vec<Match>,
    /// How far it has looked: the cursor for the next one.
    pub last: LineNo,
    /// Whether the output goes on behind that.
    pub has_more: bool,
    /// Lines that were evicted before they could be looked at.
    pub dropped_lines: u64,
}

impl Job {
    /// Looks through the kept lines in their clean view, a piece at a time: nobody who appends has to wait. A pattern that takes
    /// too long ends it with what was found so far, and `has_more`.
    ///
    /// # Errors
    /// [`Error::TooSlow`] when nothing could be looked at.
    pub async fn search(&self, query: SearchQuery, pattern: Regex) -> Result<Found, Error> {
        self.enter(Verb::Search);
        let (mut matching, selection) = (Matching::new([Some(pattern)]), query.selection);
        let mut search = self.job.read_log(|log| Search::new(query, log.ring()));
        let mut looked = 0;
        while let Some(lines) = self.job.read_log(|log| search.fetch(log.ring())) {
            let fetched = lines.len();
            let texts = lines.iter().map(|fetched| fetched.line.text.clone()).collect();
            let found = matching.look(texts).await?;
            looked += found.len();
            if looked == 0 {
                return Err(matching.too_slow().into());
            }
            let is_spent = found.len() < fetched;
            for (fetched, [is_match]) in lines.into_iter().zip(found) {
                search.take(fetched, is_match == Some(true));
            }
            if is_spent {
                break;
            }
        }
        let dropped_lines = search.dropped_lines();
        let (matches, last) = search.finish();
        let has_more = self.job.read_log(|log| log.ring().lines_after(last, selection).next().is_some());
        Ok(Found { matches, last, has_more, dropped_lines })
    }
}
