//! The reply of tail.

use std::collections::BTreeMap;
use std::time::{Duration, UNIX_EPOCH};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::leave_out::{is_false, is_one, is_zero, one};
use crate::verbs::screen::Screen;
use crate::verbs::span::StyledSpan;
use crate::{Clamped, Format, Standing};
use sshjobs_core::jobs::{
    Job, Line, LineNo, ReturnedBecause, Stream, Tail, TextStyle, clean, shown_end, styled,
};

/// The lines after the cursor, and the job's state.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TailReply {
    /// The lines, oldest first (format lean).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<String>>,
    /// The lines as records, oldest first (format records).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub records: Option<Vec<LineRecord>>,
    /// Number of the first line here; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_line_no: Option<u64>,
    /// Cursor for the next call: the last line here, or the last evicted line.
    pub last_line_no: u64,
    /// Numbers of the lines here that are stderr; absent if none is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stderr_lines: Vec<u64>,
    /// Numbers of the lines here that continue a line too long to keep in one piece; absent if none does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub continuation_lines: Vec<u64>,
    /// False only when the job has ended and this reply reaches the end of its output.
    pub still_running: bool,
    /// State, exit_status and exit_signal.
    #[serde(flatten)]
    pub standing: Standing,
    /// Whether lines between the cursor and last_line_no were evicted.
    pub buffer_truncated: bool,
    /// Number of evicted lines between the cursor and last_line_no. For one stream it may include evicted lines of the other.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_lines: u64,
    /// Number of lines between the cursor and last_line_no that keep or filter skipped.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_lines: u64,
    /// The oldest line kept, or the next line to come; absent if it is the first.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub first_available_line_no: u64,
    /// Number of lines printed, which is the number of the newest.
    pub total_lines: u64,
    /// Whether there are more lines already: read them without waiting.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_more: bool,
    /// Unfinished last lines, such as prompts: shown, not consumed. Of a long one the last 2048 bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<Partial>,
    /// Whether the job seems to wait for input: its line is unfinished, it is silent, and one of its processes reads stdin (or may, and the line looks like a prompt).
    #[serde(default, skip_serializing_if = "is_false")]
    pub awaiting_input: bool,
    /// Milliseconds since the job's last output.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub silent_ms: u64,
    /// Why the wait ended.
    pub returned_because: Because,
    /// The line that matched `until`; absent if the unfinished line did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched_line_no: Option<u64>,
    /// The row of the screen that matched `until`; the top one is 1.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub matched_row: Option<u32>,
    /// With matched_row: the screen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub screen: Option<Box<Screen>>,
    /// With job_ids: the reply of each job. The other fields then summarize all jobs; last_line_no is 0.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<JobTail>,
    /// With job_ids: cursors for the next call.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub cursors: BTreeMap<String, u64>,
    /// Arguments that were out of range, and the values used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

/// News of one of several jobs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct JobTail {
    /// The job.
    pub job_id: String,
    /// Its new lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
    /// Its unfinished last line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub partial: Option<Partial>,
    /// False only when the job has ended and its lines were all returned.
    pub still_running: bool,
    /// State, exit_status and exit_signal.
    #[serde(flatten)]
    pub standing: Standing,
    /// Whether it seems to wait for input.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(skip)]
    pub awaiting_input: bool,
    /// Number of evicted lines that were not returned.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(skip)]
    pub dropped_lines: u64,
    /// Number of lines that keep or filter skipped.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(skip)]
    pub skipped_lines: u64,
    /// Whether until matched here.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(skip)]
    pub matched: bool,
}

/// One line.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct LineRecord {
    /// Its number.
    pub line_no: u64,
    /// The host it came from, in a fleet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub member: Option<String>,
    /// Its stream.
    pub stream: StreamName,
    /// Arrival of its end, in milliseconds since the Unix epoch.
    pub ts: u64,
    /// The same time in UTC (ISO 8601).
    #[serde(default)]
    pub time: String,
    /// Its text.
    pub text: String,
    /// Its text in pieces of one style, with render spans; absent if all of it has the default style.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub spans: Vec<StyledSpan>,
    /// Whether it continues the line before it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continuation: bool,
}

/// The name of an output stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum StreamName {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Unfinished last lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Partial {
    /// Of standard output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<String>,
    /// Of standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<String>,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
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
    /// wait_ms has passed.
    Timeout,
}

impl TailReply {
    pub(crate) fn new(
        job: &Job,
        tail: Tail,
        format: Format,
        awaiting_input: bool,
        clamped: Vec<Clamped>,
    ) -> Self {
        let still_running = tail.still_running();
        let last_line_no = tail.page.last_line_no.value();
        let Tail {
            page,
            partial,
            status,
            because,
            ..
        } = tail;
        let first_line_no = page.lines.first().map(|line| line.line_no.value());
        let stderr_lines = line_numbers_where(&page.lines, |line| line.stream == Stream::Stderr);
        let continuation_lines = line_numbers_where(&page.lines, |line| line.continuation);
        // Last, because it consumes the lines.
        let shown = page.lines.into_iter();
        let (lines, records) = match format {
            Format::Lean => (Some(shown.map(|line| job.display(line)).collect()), None),
            Format::Records => (
                None,
                Some(shown.map(|line| LineRecord::of(job, line)).collect()),
            ),
        };
        Self {
            first_line_no,
            last_line_no,
            stderr_lines,
            continuation_lines,
            still_running,
            standing: Standing::of(&status),
            buffer_truncated: page.dropped_lines > 0,
            dropped_lines: page.dropped_lines,
            skipped_lines: page.skipped_lines,
            first_available_line_no: status.first_available.value(),
            total_lines: status.total_lines,
            has_more: page.has_more,
            partial: Partial::of(partial),
            awaiting_input,
            silent_ms: u64::try_from(status.silent.as_millis()).unwrap_or(u64::MAX),
            returned_because: because.into(),
            jobs: Vec::new(),
            cursors: BTreeMap::new(),
            matched_row: because.matched_row(),
            screen: None,
            matched_line_no: because.matched_line().map(LineNo::value),
            clamped,
            records,
            lines,
        }
    }
}

fn line_numbers_where(lines: &[Line], predicate: impl Fn(&Line) -> bool) -> Vec<u64> {
    lines
        .iter()
        .filter(|line| predicate(line))
        .map(|line| line.line_no.value())
        .collect()
}

impl TailReply {
    /// Splits records with control sequences into pieces of clean text, each with its style, and cleans
    /// unfinished lines.
    pub(super) fn split_styles(&mut self) {
        for record in self.records.iter_mut().flatten() {
            let pieces = styled(record.text.as_bytes());
            record.text = pieces.iter().map(|piece| piece.text.as_str()).collect();
            if pieces.iter().any(|piece| piece.style != TextStyle::default()) {
                record.spans = pieces.into_iter().map(StyledSpan::from).collect();
            }
        }
        if let Some(partial) = &mut self.partial {
            for text in [&mut partial.stdout, &mut partial.stderr].into_iter().flatten() {
                *text = clean(text.as_bytes()).into_owned();
            }
        }
    }
}

impl Partial {
    fn of(partials: Vec<(Stream, String)>) -> Option<Self> {
        let mut partial = Self::default();
        for (stream, text) in partials {
            let text = shown(text);
            match stream {
                Stream::Stdout => partial.stdout = Some(text),
                Stream::Stderr => partial.stderr = Some(text),
            }
        }
        (partial != Self::default()).then_some(partial)
    }
}

/// The end of a long line, marked as such.
fn shown(text: String) -> String {
    let end = shown_end(&text);
    if end.len() == text.len() {
        text
    } else {
        format!("…{end}")
    }
}

/// Last millisecond of the year 9999, after which ISO 8601 needs more digits.
const LAST_TIME: u64 = 253_402_300_799_999;

/// A time in milliseconds since the Unix epoch, in UTC (ISO 8601).
fn utc(timestamp: u64) -> String {
    let since_epoch = Duration::from_millis(timestamp.min(LAST_TIME));
    humantime::format_rfc3339_millis(UNIX_EPOCH + since_epoch).to_string()
}

impl LineRecord {
    fn of(job: &Job, line: Line) -> Self {
        Self {
            line_no: line.line_no.value(),
            member: job.host_of(&line).map(str::to_owned),
            stream: line.stream.into(),
            ts: line.timestamp,
            time: utc(line.timestamp),
            text: line.text,
            spans: Vec::new(),
            continuation: line.continuation,
        }
    }
}

impl From<Stream> for StreamName {
    fn from(stream: Stream) -> Self {
        match stream {
            Stream::Stdout => Self::Stdout,
            Stream::Stderr => Self::Stderr,
        }
    }
}

impl From<ReturnedBecause> for Because {
    fn from(because: ReturnedBecause) -> Self {
        match because {
            ReturnedBecause::Lines => Self::Lines,
            ReturnedBecause::Matched(_) | ReturnedBecause::MatchedRow(_) => Self::Matched,
            ReturnedBecause::Quiet => Self::Quiet,
            ReturnedBecause::Ended => Self::Ended,
            ReturnedBecause::Timeout => Self::Timeout,
        }
    }
}
