use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clamp::Clamps;
use super::tail::{MOST_BYTES, regex};
use super::{Clamped, Error, Service, StreamArg, StreamName};
use crate::output::{LineNo, Match, Search, SearchQuery};

/// Look for a pattern in a job's output.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchRequest {
    /// The job, as ssh_spawn named it.
    pub job_id: String,
    /// Regular expression that a line must match; (?i) at its start ignores case.
    pub pattern: String,
    /// Which stream to look through.
    #[serde(default)]
    pub stream: StreamArg,
    /// Only lines behind this one: last_line_no of the reply before, to go on.
    #[serde(default)]
    pub since_line_no: i64,
    /// Lines to show before and after each match, 0 to 20. Default 2.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub context: Option<i64>,
    /// Matches in the reply, 1 to 1000. Default 50.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub max_matches: Option<i64>,
    /// Bytes of text in the reply, up to 262144. Default 32768.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub max_bytes: Option<i64>,
}

/// The lines that match.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct SearchReply {
    /// The matches, oldest first.
    pub matches: Vec<MatchEntry>,
    /// The cursor for the next search: how far this one has looked.
    pub last_line_no: u64,
    /// Whether the job's output goes on behind last_line_no.
    pub has_more: bool,
    /// How many lines behind since_line_no were evicted before they could be looked at.
    pub dropped_lines: u64,
    /// Arguments that were out of range, and what was used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

/// A line that matches.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct MatchEntry {
    /// Its number.
    pub line_no: u64,
    /// The stream it came on.
    pub stream: StreamName,
    /// Its text.
    pub text: String,
    /// The lines before it, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// The lines after it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

impl Service {
    /// Looks through the kept lines of a job in their clean view, a piece at a time: nobody who appends has to wait.
    pub async fn search(&self, request: SearchRequest) -> Result<SearchReply, Error> {
        let job = self.job(&request.job_id)?;
        let mut clamps = Clamps::default();
        let max_bytes = request.max_bytes.unwrap_or(i64::from(self.config.defaults.max_bytes));
        let newest = i64::try_from(job.status().total_lines).unwrap_or(i64::MAX);
        let cursor = LineNo::new(clamps.clamp("since_line_no", request.since_line_no, 0..=newest));
        let query = SearchQuery {
            pattern: regex("pattern", &request.pattern)?,
            cursor,
            selection: request.stream.into(),
            context: clamps.size("context", request.context.unwrap_or(2), 0..=20)?,
            max_matches: clamps.size("max_matches", request.max_matches.unwrap_or(50), 1..=1000)?,
            max_bytes: clamps.size("max_bytes", max_bytes, 1..=MOST_BYTES)?,
        };
        let mut search = job.read_log(|log| Search::new(query, log.ring()));
        while let Some(lines) = job.read_log(|log| search.fetch(log.ring())) {
            search.look(lines);
            tokio::task::yield_now().await;
        }
        let dropped_lines = search.dropped_lines();
        let (matches, last) = search.finish();
        let has_more =
            job.read_log(|log| log.ring().lines_after(last, request.stream.into()).next().is_some());
        let matches = matches.into_iter().map(MatchEntry::from).collect();
        Ok(SearchReply { matches, last_line_no: last.value(), has_more, dropped_lines, clamped: clamps.0 })
    }
}

impl From<Match> for MatchEntry {
    fn from(found: Match) -> Self {
        Self {
            line_no: found.line.line_no.value(),
            stream: found.line.stream.into(),
            text: found.line.text,
            before: found.before,
            after: found.after,
        }
    }
}
