use std::time::Duration;

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clamp::Clamps;
use super::{Error, Format, KeepArg, RenderArg, Service, StreamArg, TailReply};
use crate::jobs::{LineNo, PageQuery, Wait};

/// Read a job's output behind a cursor, waiting for news if there is none.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TailRequest {
    /// Job from ssh_spawn.
    pub job_id: String,
    /// Cursor: last_line_no of the previous reply; 0 (default) is the beginning.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub since_line_no: Option<i64>,
    /// Name under which the server keeps the cursor for you.
    #[serde(default)]
    #[schemars(with = "String", length(min = 1, max = 64))]
    pub reader: Option<String>,
    /// How long to wait for news, up to 50000. Default 0.
    #[serde(default)]
    pub wait_ms: i64,
    /// Lines to return, up to 10000. Default 500.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub max_lines: Option<i64>,
    /// Bytes to return, up to 262144. Default 32768.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub max_bytes: Option<i64>,
    /// Which stream.
    #[serde(default)]
    pub stream: StreamArg,
    /// Of more than max_lines: the first, or the last (skipping the others).
    #[serde(default)]
    pub keep: KeepArg,
    /// Return only lines matching this regex, skipping the others.
    #[serde(default)]
    #[schemars(with = "String")]
    pub filter: Option<String>,
    /// Wait until a line matches this regex; return the lines up to it.
    #[serde(default)]
    #[schemars(with = "String")]
    pub until: Option<String>,
    /// Wait until nothing was printed for this long.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub quiet_ms: Option<i64>,
    /// records: with number, stream and time.
    #[serde(default)]
    pub format: Format,
    /// clean: without control sequences.
    #[serde(default)]
    pub render: RenderArg,
}

pub(super) const MOST_LINES: i64 = 10_000;
pub(super) const MOST_BYTES: i64 = 262_144;
/// Bytes that a record costs besides its text, about: number, stream, time, names.
const RECORD_BYTES: usize = 80;
const LONGEST_WAIT_MS: u64 = 60_000;
/// Largest compiled pattern, in bytes.
const REGEX_BYTES: usize = 1 << 20;

impl TailRequest {
    /// A request for the lines of `job_id` behind `cursor`, waiting for `wait_ms`.
    pub fn new(job_id: impl Into<String>, cursor: u64, wait_ms: u64) -> Self {
        Self {
            job_id: job_id.into(),
            since_line_no: Some(i64::try_from(cursor).unwrap_or(i64::MAX)),
            reader: None,
            wait_ms: i64::try_from(wait_ms).unwrap_or(i64::MAX),
            max_lines: None,
            max_bytes: None,
            stream: StreamArg::Both,
            keep: KeepArg::First,
            filter: None,
            until: None,
            quiet_ms: None,
            format: Format::Lean,
            render: RenderArg::Clean,
        }
    }
}

impl Service {
    /// Reads the lines behind a cursor; waits for news when there is none.
    ///
    /// Reading changes nothing: the same call gives the same answer until lines are evicted. (Only the cursor of a named
    /// reader moves, and no line is given out twice under one name.) Cancelling ends the wait and moves nothing.
    pub async fn tail(&self, request: TailRequest) -> Result<TailReply, Error> {
        self.tail_behind(request, 0).await
    }

    /// The same for a caller to whom so many bytes of output are no news.
    pub(super) async fn tail_behind(
        &self,
        request: TailRequest,
        known_bytes: u64,
    ) -> Result<TailReply, Error> {
        let job = self.job(&request.job_id).await?;
        let mut clamps = Clamps::default();
        let query = self.page_query(&request, job.status().total_lines, &mut clamps)?;
        let wait = self.wait_of(&request, known_bytes, &mut clamps)?;
        let (tail, awaiting_input) = match &request.reader {
            Some(reader) => {
                check_name(reader)?;
                let from = request.since_line_no.map(|_| query.cursor);
                match self.unless_closed(job.tail_as(reader, from, (&query, &wait))).await {
                    Some(tail) => tail?,
                    // The cursor has not moved.
                    None => {
                        let wait = Wait { patience: Duration::ZERO, ..wait };
                        job.tail_as(reader, from, (&query, &wait)).await?
                    }
                }
            }
            None => {
                let tail = match self.unless_closed(job.tail(&query, &wait)).await {
                    Some(tail) => tail?,
                    None => job.tail(&query, &Wait { patience: Duration::ZERO, ..wait }).await?,
                };
                (tail, job.awaits_input(query.selection).await)
            }
        };
        Ok(TailReply::new(tail, (request.format, job.fleet().is_some()), awaiting_input, clamps.0))
    }

    fn wait_of(&self, request: &TailRequest, known_bytes: u64, clamps: &mut Clamps) -> Result<Wait, Error> {
        let longest = self.limits().max_wait_ms.min(LONGEST_WAIT_MS);
        let pattern = |field, pattern: &Option<String>| {
            pattern.as_deref().map(|pattern| regex(field, pattern)).transpose()
        };
        Ok(Wait {
            patience: Duration::from_millis(clamps.wait_ms("wait_ms", request.wait_ms, longest)),
            until: pattern("until", &request.until)?,
            filter: pattern("filter", &request.filter)?,
            quiet: request.quiet_ms.map(|quiet| {
                let longest = i64::try_from(longest).unwrap_or(i64::MAX);
                Duration::from_millis(clamps.clamp("quiet_ms", quiet, 10..=longest))
            }),
            known_bytes,
        })
    }

    fn page_query(
        &self,
        request: &TailRequest,
        newest: u64,
        clamps: &mut Clamps,
    ) -> Result<PageQuery, Error> {
        let defaults = self.defaults();
        let max_lines = request.max_lines.unwrap_or(i64::from(defaults.max_lines));
        let max_bytes = request.max_bytes.unwrap_or(i64::from(defaults.max_bytes));
        // A cursor that no reply has given would read nothing and believe that it had read all.
        let newest = i64::try_from(newest).unwrap_or(i64::MAX);
        let since = request.since_line_no.unwrap_or(0);
        Ok(PageQuery {
            cursor: LineNo::new(clamps.clamp("since_line_no", since, 0..=newest)),
            selection: request.stream.into(),
            max_lines: clamps.size("max_lines", max_lines, 1..=MOST_LINES)?,
            max_bytes: clamps.size("max_bytes", max_bytes, 1..=MOST_BYTES)?,
            line_bytes: if request.format == Format::Records { RECORD_BYTES } else { 1 },
            render: request.render.into(),
            keep: request.keep.into(),
        })
    }
}

fn check_name(reader: &str) -> Result<(), Error> {
    if (1..=64).contains(&reader.chars().count()) {
        return Ok(());
    }
    Err(Error::invalid("reader is no name", "use a name of 1 to 64 characters"))
}

/// Compiles a caller's pattern.
pub(super) fn regex(field: &str, pattern: &str) -> Result<Regex, Error> {
    RegexBuilder::new(pattern).size_limit(REGEX_BYTES).build().map_err(|error| {
        let message = error.to_string();
        let reason = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
        Error::invalid(
            format!("{field} is not a regular expression: {reason}"),
            "correct the pattern; a backslash before a special character makes it literal",
        )
    })
}
