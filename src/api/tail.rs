use std::time::Duration;

use regex::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clamp::Clamps;
use super::{Clamped, Code, Ending, Error, Service};
use crate::job::{ReturnedBecause, Tail, Wait};
use crate::output::{LineNo, PageLine, PageQuery, Render, Selection, Stream};

/// Read a job's output behind a cursor, waiting for news if there is none.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TailRequest {
    /// The job, as ssh_spawn named it.
    pub job_id: String,
    /// The cursor: last_line_no of the reply before; 0 for the beginning.
    #[serde(default)]
    pub since_line_no: i64,
    /// How long to wait for a new line, in milliseconds; at most 60000. 0 answers at once.
    #[serde(default)]
    pub wait_ms: i64,
    /// Lines in the reply, 1 to 10000. Default 500.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub max_lines: Option<i64>,
    /// Bytes of text in the reply, up to 262144; ends on a line border. Default 32768.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub max_bytes: Option<i64>,
    /// Which stream to read.
    #[serde(default)]
    pub stream: StreamArg,
    /// Wait until a line, or the unfinished one, matches this regular expression; the reply ends with that line.
    #[serde(default)]
    #[schemars(with = "String")]
    pub until: Option<String>,
    /// Wait until the job has printed nothing for so many milliseconds.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub quiet_ms: Option<i64>,
    /// lean: lines as strings; records: with number, stream and time.
    #[serde(default)]
    pub format: Format,
    /// clean: without control sequences, of a progress bar the last frame; raw: as it came.
    #[serde(default)]
    pub render: RenderArg,
}

/// Which output stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum StreamArg {
    /// Both, merged by line number.
    #[default]
    Both,
    /// Standard output only.
    Stdout,
    /// Standard error only.
    Stderr,
}

/// How lines are written in a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Format {
    /// As strings.
    #[default]
    Lean,
    /// As objects with number, stream and time.
    Records,
}

/// How bytes become text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum RenderArg {
    /// Without control sequences; of a progress bar the last frame.
    #[default]
    Clean,
    /// As it came.
    Raw,
}

/// The lines behind the cursor, and how the job stands.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct TailReply {
    /// The lines, oldest first (format lean).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub lines: Option<Vec<String>>,
    /// The lines as records, oldest first (format records).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<Record>")]
    pub records: Option<Vec<Record>>,
    /// Number of the first line here; absent when there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub first_line_no: Option<u64>,
    /// The cursor for the next call.
    pub last_line_no: u64,
    /// Numbers of the lines here that are stderr; absent when none is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stderr_lines: Vec<u64>,
    /// Numbers of the lines here that continue a line too long to keep in one piece; absent when none does.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub continuation_lines: Vec<u64>,
    /// False only when the job has ended and this reply reaches the end of its output.
    pub still_running: bool,
    /// State, exit_status and exit_signal.
    #[serde(flatten)]
    pub ending: Ending,
    /// Whether lines between the cursor and the first line here are gone.
    pub buffer_truncated: bool,
    /// How many, counting both streams.
    pub dropped_lines: u64,
    /// The oldest line still kept, or the next to come.
    pub first_available_line_no: u64,
    /// How many lines the job has printed, which is the number of the newest.
    pub total_lines: u64,
    /// Whether more lines are there already: read on without waiting.
    pub has_more: bool,
    /// Unfinished last lines, such as prompts: shown, not consumed.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Partial")]
    pub partial: Option<Partial>,
    /// Milliseconds since the job last printed anything.
    pub silent_ms: u64,
    /// What ended the wait.
    pub returned_because: Because,
    /// The line that matched `until`; absent when the unfinished line did.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub matched_line_no: Option<u64>,
    /// Arguments that were out of range, and what was used.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

/// One line.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Record {
    /// Its number.
    pub line_no: u64,
    /// The stream it came on.
    pub stream: StreamName,
    /// When its end arrived, in milliseconds since the Unix epoch.
    pub ts: u64,
    /// Its text.
    pub text: String,
    /// Whether it continues the line before it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub continuation: bool,
}

/// The name of an output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum StreamName {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Unfinished last lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct Partial {
    /// Of standard output.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub stdout: Option<String>,
    /// Of standard error.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub stderr: Option<String>,
}

/// What ended a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Because {
    /// There are lines.
    Lines,
    /// `until` matched.
    Matched,
    /// The job was silent for quiet_ms.
    Quiet,
    /// The job has ended and the end of its output is reached.
    Ended,
    /// wait_ms ran out.
    Timeout,
}

pub(super) const MOST_LINES: i64 = 10_000;
pub(super) const MOST_BYTES: i64 = 262_144;
const LONGEST_WAIT_MS: u64 = 60_000;
/// A pattern may not compile to more than this.
const REGEX_BYTES: usize = 1 << 20;

impl TailRequest {
    /// A request for the lines of `job_id` behind `cursor`, waiting for `wait_ms`.
    pub fn new(job_id: impl Into<String>, cursor: u64, wait_ms: u64) -> Self {
        Self {
            job_id: job_id.into(),
            since_line_no: i64::try_from(cursor).unwrap_or(i64::MAX),
            wait_ms: i64::try_from(wait_ms).unwrap_or(i64::MAX),
            max_lines: None,
            max_bytes: None,
            stream: StreamArg::Both,
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
    /// Reading changes nothing: the same call gives the same answer until lines are evicted. Cancelling ends the wait.
    pub async fn tail(&self, request: TailRequest) -> Result<TailReply, Error> {
        let job = self.job(&request.job_id)?;
        let mut clamps = Clamps::default();
        let query = self.page_query(&request, &mut clamps);
        let longest = self.limits().max_wait_ms.min(LONGEST_WAIT_MS);
        let wait = Wait {
            patience: Duration::from_millis(clamps.wait_ms("wait_ms", request.wait_ms, longest)),
            until: request.until.as_deref().map(|pattern| regex("until", pattern)).transpose()?,
            quiet: request.quiet_ms.map(|quiet| {
                let longest = i64::try_from(longest).unwrap_or(i64::MAX);
                Duration::from_millis(clamps.clamp("quiet_ms", quiet, 10..=longest))
            }),
        };
        let tail = job.tail(&query, &wait).await;
        Ok(TailReply::new(tail, &query, request.format, clamps.0))
    }

    fn page_query(&self, request: &TailRequest, clamps: &mut Clamps) -> PageQuery {
        let defaults = &self.config.defaults;
        let max_lines = request.max_lines.unwrap_or(i64::from(defaults.max_lines));
        let max_bytes = request.max_bytes.unwrap_or(i64::from(defaults.max_bytes));
        let size = |clamped: u64| usize::try_from(clamped).unwrap_or(usize::MAX);
        PageQuery {
            cursor: LineNo::new(clamps.clamp("since_line_no", request.since_line_no, 0..=i64::MAX)),
            selection: request.stream.into(),
            max_lines: size(clamps.clamp("max_lines", max_lines, 1..=MOST_LINES)),
            max_bytes: size(clamps.clamp("max_bytes", max_bytes, 1..=MOST_BYTES)),
            render: request.render.into(),
        }
    }
}

/// Compiles a caller's pattern.
pub(super) fn regex(field: &str, pattern: &str) -> Result<Regex, Error> {
    RegexBuilder::new(pattern).size_limit(REGEX_BYTES).build().map_err(|error| {
        let message = error.to_string();
        let reason = message.lines().last().unwrap_or_default().trim_start_matches("error: ");
        Error::new(
            Code::InvalidArgument,
            format!("{field} is not a regular expression: {reason}"),
            "correct the pattern; a backslash before a special character makes it literal",
        )
    })
}

impl TailReply {
    fn new(tail: Tail, query: &PageQuery, format: Format, clamped: Vec<Clamped>) -> Self {
        let still_running = tail.still_running();
        let last_line_no = tail.page.last_line_no(query.cursor).value();
        let Tail { page, partial, status, because } = tail;
        let numbers = |wanted: fn(&PageLine) -> bool| {
            page.lines.iter().filter(|line| wanted(line)).map(|line| line.line_no.value()).collect()
        };
        let text = |line: PageLine| line.text;
        Self {
            first_line_no: page.lines.first().map(|line| line.line_no.value()),
            last_line_no,
            stderr_lines: numbers(|line| line.stream == Stream::Stderr),
            continuation_lines: numbers(|line| line.continuation),
            still_running,
            ending: Ending::of(&status.phase),
            buffer_truncated: page.dropped_lines > 0,
            dropped_lines: page.dropped_lines,
            first_available_line_no: status.first_available.value(),
            total_lines: status.total_lines,
            has_more: page.has_more,
            partial: Partial::of(partial),
            silent_ms: u64::try_from(status.silent.as_millis()).unwrap_or(u64::MAX),
            returned_because: because.into(),
            matched_line_no: because.matched_line().map(LineNo::value),
            clamped,
            records: (format == Format::Records)
                .then(|| page.lines.iter().cloned().map(Record::from).collect()),
            lines: (format == Format::Lean).then(|| page.lines.into_iter().map(text).collect()),
        }
    }
}

impl Partial {
    fn of(partials: Vec<(Stream, String)>) -> Option<Self> {
        let mut partial = Self::default();
        for (stream, text) in partials {
            match stream {
                Stream::Stdout => partial.stdout = Some(text),
                Stream::Stderr => partial.stderr = Some(text),
            }
        }
        (partial != Self::default()).then_some(partial)
    }
}

impl From<PageLine> for Record {
    fn from(line: PageLine) -> Self {
        Self {
            line_no: line.line_no.value(),
            stream: match line.stream {
                Stream::Stdout => StreamName::Stdout,
                Stream::Stderr => StreamName::Stderr,
            },
            ts: line.at,
            text: line.text,
            continuation: line.continuation,
        }
    }
}

impl From<ReturnedBecause> for Because {
    fn from(because: ReturnedBecause) -> Self {
        match because {
            ReturnedBecause::Lines => Self::Lines,
            ReturnedBecause::Matched(_) => Self::Matched,
            ReturnedBecause::Quiet => Self::Quiet,
            ReturnedBecause::Ended => Self::Ended,
            ReturnedBecause::Timeout => Self::Timeout,
        }
    }
}

impl From<StreamArg> for Selection {
    fn from(stream: StreamArg) -> Self {
        match stream {
            StreamArg::Both => Self::Both,
            StreamArg::Stdout => Self::Only(Stream::Stdout),
            StreamArg::Stderr => Self::Only(Stream::Stderr),
        }
    }
}

impl From<RenderArg> for Render {
    fn from(render: RenderArg) -> Self {
        match render {
            RenderArg::Clean => Self::Clean,
            RenderArg::Raw => Self::Raw,
        }
    }
}
