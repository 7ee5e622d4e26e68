//! The verb tail: the read on which the canonical loop is built. Models read the comments of the
//! parameters; the tool's own description is in `mcp/server.rs`.

use std::collections::BTreeMap;
use std::time::Duration;

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::tail_reply::TailReply;
use crate::clamp::Clamps;
use crate::error::Error;
use crate::request::whole_numbers;
use crate::verbs::screen::Screen;
use crate::{Format, KeepArg, RenderArg, Service, StreamArg};
use sshjobs_core::jobs::{LineNo, PageQuery, ReadableJob, ScreenWait, SilenceFrom, Verb, Wait};

/// Read a job's output after a cursor, waiting for news if there is none.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TailRequest {
    /// Job from ssh_spawn.
    #[serde(default)]
    pub job_id: String,
    /// Several jobs, up to 50: returns when one has news. Omit ended ones.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub job_ids: Vec<String>,
    /// With job_ids: cursors of the previous reply, by job.
    #[serde(
        default,
        skip_serializing_if = "BTreeMap::is_empty",
        deserialize_with = "whole_numbers"
    )]
    pub cursors: BTreeMap<String, u64>,
    /// Cursor: last_line_no of the previous reply; 0 (default) is the start.
    #[serde(default)]
    pub since_line_no: Option<i64>,
    /// Name under which the server keeps a cursor.
    #[serde(default)]
    #[schemars(length(min = 1, max = 64))]
    pub reader: Option<String>,
    /// Milliseconds to wait for news, up to 50000. Default 0.
    #[serde(default)]
    pub wait_ms: i64,
    /// Maximum lines to return, up to 10000. Default 500.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub max_lines: Option<i64>,
    /// Maximum bytes to return, up to 81920 over MCP. Default 32768.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub max_bytes: Option<i64>,
    /// Stream to read.
    #[serde(default)]
    pub stream: StreamArg,
    /// If there are more than max_lines: the first, or the last.
    #[serde(default)]
    pub keep: KeepArg,
    /// Only lines that match this regex.
    #[serde(default)]
    pub filter: Option<String>,
    /// Wait until a line matches this regex; return the lines up to it.
    #[serde(default)]
    pub until: Option<String>,
    /// Wait until nothing was printed for this many milliseconds.
    #[serde(default)]
    pub quiet_ms: Option<i64>,
    /// records: objects with number, stream and time.
    #[serde(default)]
    pub format: Format,
    /// clean: without control sequences.
    #[serde(default)]
    pub render: RenderArg,
}

/// Output that is not news for a caller who has just written; see [`Wait`].
#[derive(Debug, Default)]
pub(crate) struct KnownOutput {
    /// All bytes before the write.
    pub(crate) bytes: u64,
    pub(crate) silence_from: SilenceFrom,
}

pub(crate) const MOST_LINES: i64 = 10_000;
pub(crate) const MOST_BYTES: i64 = 262_144;
/// Approximate bytes of a record besides its text: number, stream, times, names.
const RECORD_BYTES: usize = 112;
const LONGEST_WAIT_MS: u64 = 60_000;
/// Least value of `quiet_ms`.
pub(crate) const LEAST_QUIET_MS: i64 = 10;
/// Largest compiled pattern, in bytes.
const REGEX_BYTES: usize = 1 << 20;

impl TailRequest {
    /// A request for the lines of `job_id` after `cursor`, waiting for `wait_ms`.
    pub fn new(job_id: impl Into<String>, cursor: u64, wait_ms: u64) -> Self {
        Self {
            job_id: job_id.into(),
            job_ids: Vec::new(),
            cursors: BTreeMap::new(),
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
    /// Reads the lines after a cursor. Waits for news if there are none.
    ///
    /// Reading changes nothing: the same call returns the same answer until lines are evicted.
    /// (Only the cursor of a named reader moves, and no line is returned twice under one name.)
    /// Cancelling ends the wait and moves nothing.
    pub async fn tail(&self, request: TailRequest) -> Result<TailReply, Error> {
        if request.job_ids.is_empty() {
            return self.tail_one(request).await;
        }
        self.tail_many(request).await
    }

    /// Like [`tail`](Self::tail), of one job.
    pub(crate) async fn tail_one(&self, request: TailRequest) -> Result<TailReply, Error> {
        if request.job_id.is_empty() {
            return Err(Error::invalid(
                "no job is named",
                "use job_id, or job_ids for several",
            ));
        }
        if !request.cursors.is_empty() {
            return Err(Error::invalid(
                "cursors are for job_ids",
                "use since_line_no",
            ));
        }
        let job = self.readable(Verb::Tail, &request.job_id).await?;
        self.tail_allowed(&job, request, KnownOutput::default()).await
    }

    /// Like [`tail`](Self::tail), of a job that the caller may read, and without what the caller knows.
    pub(crate) async fn tail_allowed(
        &self,
        job: &ReadableJob,
        request: TailRequest,
        known: KnownOutput,
    ) -> Result<TailReply, Error> {
        if request.render == RenderArg::Spans && request.format != Format::Records {
            let hint = "add format=records, or use render=clean";
            return Err(Error::invalid("only records have spans", hint));
        }
        let mut clamps = Clamps::default();
        let since = u64::try_from(request.since_line_no.unwrap_or(0)).unwrap_or(0);
        // The cursor may come from the process that records the job, ahead of the copy here.
        let newest = job.newest_for(since).await;
        let query = self.page_query(&request, newest, &mut clamps)?;
        let wait = self.wait_of(&request, known, &mut clamps)?;
        let (tail, awaiting_input) = match &request.reader {
            Some(reader) => {
                check_name(reader)?;
                // Without a line in the request, the cursor that is kept under this name applies.
                let from = request.since_line_no.map(|_| query.cursor);
                match self.unless_closed(job.tail_as(reader, from, &query, &wait)).await {
                    Some(tail) => tail?,
                    // The cursor has not moved.
                    None => {
                        let wait = Wait {
                            patience: Duration::ZERO,
                            ..wait
                        };
                        job.tail_as(reader, from, &query, &wait).await?
                    }
                }
            }
            None => {
                let tail = match self.unless_closed(job.tail(&query, &wait)).await {
                    Some(tail) => tail?,
                    None => {
                        job.tail(
                            &query,
                            &Wait {
                                patience: Duration::ZERO,
                                ..wait
                            },
                        )
                        .await?
                    }
                };
                (tail, job.awaits_input(query.selection).await)
            }
        };
        let mut reply = TailReply::new(job, tail, request.format, awaiting_input, clamps.0);
        if request.render == RenderArg::Spans {
            reply.split_styles();
        }
        if reply.matched_row.is_some() {
            // A full-screen program has no line that could be read.
            reply.screen = Some(Box::new(Screen::of(
                job.screen(&ScreenWait::default()).await?,
                None,
            )));
            reply.partial = None;
        }
        Ok(reply)
    }

    fn wait_of(
        &self,
        request: &TailRequest,
        known: KnownOutput,
        clamps: &mut Clamps,
    ) -> Result<Wait, Error> {
        let longest = self.longest_wait_ms().min(LONGEST_WAIT_MS);
        Ok(Wait {
            patience: Duration::from_millis(clamps.wait_ms("wait_ms", request.wait_ms, longest)),
            until: optional_regex("until", request.until.as_deref())?,
            filter: optional_regex("filter", request.filter.as_deref())?,
            quiet: request.quiet_ms.map(|quiet| {
                let longest = i64::try_from(longest).unwrap_or(i64::MAX).max(LEAST_QUIET_MS);
                Duration::from_millis(clamps.clamp("quiet_ms", quiet, LEAST_QUIET_MS..=longest))
            }),
            known_bytes: known.bytes,
            silence_from: known.silence_from,
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
        // A cursor that no reply has returned would read nothing, and its reader would believe that
        // it had read everything.
        let newest = i64::try_from(newest).unwrap_or(i64::MAX);
        let since = request.since_line_no.unwrap_or(0);
        Ok(PageQuery {
            cursor: LineNo::new(clamps.clamp("since_line_no", since, 0..=newest)),
            selection: request.stream.into(),
            max_lines: clamps.size("max_lines", max_lines, 1..=MOST_LINES)?,
            max_bytes: clamps.size("max_bytes", max_bytes, 1..=MOST_BYTES)?,
            line_bytes: if request.format == Format::Records {
                RECORD_BYTES
            } else {
                1
            },
            render: request.render.into(),
            keep: request.keep.into(),
        })
    }
}

fn check_name(reader: &str) -> Result<(), Error> {
    if (1..=64).contains(&reader.chars().count()) {
        return Ok(());
    }
    Err(Error::invalid(
        "reader is not a valid name",
        "use a name of 1 to 64 characters",
    ))
}

/// Compiles a caller's pattern.
pub(crate) fn regex(field: &str, pattern: &str) -> Result<Regex, Error> {
    RegexBuilder::new(pattern).size_limit(REGEX_BYTES).build().map_err(|error| {
        if let regex::Error::CompiledTooBig(_) = error {
            return Error::invalid(
                format!("{field} is too big"),
                "use a shorter pattern, with fewer or smaller counted repetitions",
            );
        }
        let message = error.to_string();
        // The lines before the last one repeat the pattern and mark the mistake with a caret.
        let reason = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
        Error::invalid(
            format!("{field} is not a regular expression: {reason}"),
            "correct the pattern; a backslash before a special character makes it literal",
        )
    })
}

pub(crate) fn optional_regex(field: &str, pattern: Option<&str>) -> Result<Option<Regex>, Error> {
    pattern.map(|pattern| regex(field, pattern)).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_that_is_too_big_is_named_as_such() {
        let error = regex("until", "(?:a{1000}){1000}").unwrap_err();
        assert_eq!(error.message, "until is too big");
        let error = regex("until", "(").unwrap_err();
        assert!(
            error.message.contains("is not a regular expression"),
            "{error}"
        );
    }
}
