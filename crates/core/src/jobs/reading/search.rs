use regex::Regex;

use crate::jobs::{Error, ReadableJob, SearchQuery, SearchResult};
use sshjobs_job::Matching;

impl ReadableJob {
    /// Searches the output in its clean view, a piece at a time, so that no writer has to wait. If
    /// a pattern takes too long, returns the matches so far, with `has_more`.
    ///
    /// Write flags into the pattern, as in `(?i)error`: options of a `RegexBuilder` do not apply to stored output.
    ///
    /// # Errors
    /// [`Error::TooSlow`] if nothing could be searched.
    pub async fn search(&self, query: SearchQuery, pattern: Regex) -> Result<SearchResult, Error> {
        Ok(self.output().search(query, Matching::new([Some(pattern)])).await?)
    }
}
