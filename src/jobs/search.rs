use regex::Regex;

use super::door::Look;
use super::{Error, Found, Job, SearchQuery};
use crate::job::Matching;

impl Job {
    /// Looks through the output in its clean view, a piece at a time: nobody who appends has to wait. A pattern that takes too long
    /// ends it with what was found so far, and `has_more`.
    ///
    /// # Errors
    /// [`Error::TooSlow`] when nothing could be looked at.
    pub async fn search(&self, query: SearchQuery, pattern: Regex) -> Result<Found, Error> {
        self.look(Look::Search);
        Ok(self.job.search(query, Matching::new([Some(pattern)])).await?)
    }
}
