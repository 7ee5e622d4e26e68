//! The verb search.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clamp::Clamps;
use crate::error::Error;
use crate::leave_out::is_zero;
use crate::verbs::displayed::displayed;
use crate::verbs::tail::{MOST_BYTES, StreamName, regex};
use crate::{Clamped, Service, StreamArg};
use sshjobs_core::jobs::{Job, LineNo, Match, SearchQuery, SearchResult, Verb};

/// Search a job's output for a pattern.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SearchRequest {
    /// Job from ssh_spawn.
    #[serde(default)]
    pub job_id: String,
    /// Search files of this host, instead of a job's output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// With host: a file, or a directory with all below it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Regular expression; (?i) ignores case.
    pub pattern: String,
    /// Stream to search.
    #[serde(default)]
    pub stream: StreamArg,
    /// Cursor: last_line_no of the previous reply.
    #[serde(default)]
    pub since_line_no: i64,
    /// Search only up to this line.
    // For searches backwards, which a page makes. Models search forwards, and each word of a schema costs
    // them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub until_line_no: Option<u64>,
    /// Lines around each match. Default 2.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub context: Option<i64>,
    /// Maximum matches to return. Default 50.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub max_matches: Option<i64>,
    /// Maximum bytes to return. Default 32768.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub max_bytes: Option<i64>,
}

/// The lines that match.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SearchReply {
    /// The matches, oldest first.
    pub matches: Vec<MatchEntry>,
    /// Cursor for the next search: the last line searched.
    pub last_line_no: u64,
    /// Whether there is output after last_line_no.
    pub has_more: bool,
    /// Number of lines after since_line_no that were evicted before they could be searched.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_lines: u64,
    /// Meaning of dropped_lines, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Arguments that were out of range, and the values used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

/// A line that matches.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct MatchEntry {
    /// Its number.
    pub line_no: u64,
    /// Its stream, in a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<StreamName>,
    /// Its file, on a host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Its text.
    pub text: String,
    /// The lines before it, oldest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<String>,
    /// The lines after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
}

impl Service {
    /// Searches the kept lines of a job in their clean view, a piece at a time, so that no writer
    /// has to wait. If a pattern takes too long, returns the matches so far, with `has_more`.
    pub async fn search(&self, request: SearchRequest) -> Result<SearchReply, Error> {
        if request.host.is_some() || request.path.is_some() {
            return Box::pin(self.search_files(request)).await;
        }
        let job = self.readable(Verb::Search, &request.job_id).await?;
        let mut clamps = Clamps::default();
        let max_bytes = request.max_bytes.unwrap_or(i64::from(self.defaults().max_bytes));
        // The cursor may come from the process that records the job, ahead of the copy here.
        let newest = job.newest_for(u64::try_from(request.since_line_no).unwrap_or(0)).await;
        let newest = i64::try_from(newest).unwrap_or(i64::MAX);
        let cursor = LineNo::new(clamps.clamp("since_line_no", request.since_line_no, 0..=newest));
        let query = SearchQuery {
            cursor,
            last: request.until_line_no.map(LineNo::new),
            selection: request.stream.into(),
            context: clamps.size("context", request.context.unwrap_or(2), 0..=20)?,
            max_matches: clamps.size("max_matches", request.max_matches.unwrap_or(50), 1..=1000)?,
            max_bytes: clamps.size("max_bytes", max_bytes, 1..=MOST_BYTES)?,
        };
        let pattern = regex("pattern", &request.pattern)?;
        let SearchResult {
            matches,
            last,
            has_more,
            dropped_lines,
        } = job.search(query, pattern).await?;
        let matches = matches.into_iter().map(|found| MatchEntry::of(&job, found)).collect();
        let note = (dropped_lines > 0).then(|| {
            format!(
                "{dropped_lines} lines were no longer kept and could not be searched; search while the job runs, or raise \
                 limits.ring_buffer_lines"
            )
        });
        let last_line_no = last.value();
        Ok(SearchReply {
            matches,
            last_line_no,
            has_more,
            dropped_lines,
            note,
            clamped: clamps.0,
        })
    }
}

impl MatchEntry {
    fn of(job: &Job, found: Match) -> Self {
        Self {
            line_no: found.line.line_no.value(),
            stream: Some(found.line.stream.into()),
            path: None,
            text: job.display(found.line),
            before: displayed(job, found.before),
            after: displayed(job, found.after),
        }
    }
}
