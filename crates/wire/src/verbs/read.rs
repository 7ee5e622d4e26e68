//! The verb read.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::screen::{Screen, styled_rows};
use super::tail::{MOST_BYTES, MOST_LINES};
use crate::clamp::Clamps;
use crate::error::Error;
use crate::leave_out::{is_false, is_zero};
use crate::{Clamped, RenderArg, Service, Standing, StreamArg};
use sshjobs_core::jobs::{
    Content, Job, Line, ReadQuery, ReadableJob, Render, ScreenWait, Stream, Unit, Verb, render,
};

/// Read a part of a job's output by its position.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadRequest {
    /// Job from ssh_spawn.
    pub job_id: String,
    /// Unit of offset and length.
    #[serde(default)]
    pub unit: UnitArg,
    /// Amount to skip; negative counts from the end: -20 is the last 20.
    #[serde(default)]
    pub offset: i64,
    /// Amount to return. Default 1000 lines, 8000 chars or bytes.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub length: Option<i64>,
    /// Same as length.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub limit: Option<i64>,
    /// Maximum bytes to return. Default 32768.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub max_bytes: Option<i64>,
    /// Stream to read; positions count within it.
    #[serde(default)]
    pub stream: StreamArg,
    /// clean: without control sequences.
    #[serde(default)]
    pub render: RenderArg,
    /// base64: the exact bytes.
    #[serde(default)]
    pub encoding: Encoding,
    /// With unit screen: only the rows changed since this version.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 0))]
    pub since_version: Option<u64>,
    /// With unit screen: milliseconds to wait for a newer one.
    #[serde(default)]
    pub wait_ms: i64,
}

impl ReadRequest {
    /// A request for the first lines of `job_id`.
    pub fn new(job_id: impl Into<String>) -> Self {
        Self {
            job_id: job_id.into(),
            ..Self::default()
        }
    }
}

/// Unit of positions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum UnitArg {
    /// Finished lines.
    #[default]
    Lines,
    /// Characters of the rendered text.
    Chars,
    /// Raw bytes.
    Bytes,
    /// What the terminal shows now (jobs with pty).
    Screen,
}

/// Encoding of bytes in a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Encoding {
    /// As text.
    #[default]
    Utf8,
    /// As base64, exact.
    Base64,
}

/// A part of the output. Positions count in the given unit, within the requested streams, from the start of the job.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ReadReply {
    /// The lines (unit lines).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Vec<String>>,
    /// The text (unit chars), or the bytes in the requested encoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// What the terminal shows (unit screen).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub screen: Option<Screen>,
    /// Unit of positions in this reply.
    pub unit: UnitArg,
    /// Start of this part; later than requested if that was evicted.
    pub offset: u64,
    /// Amount in this part; offset + returned is the start of the next part.
    pub returned: u64,
    /// Total amount so far. A running job's unfinished line counts only in bytes of one stream.
    pub total: u64,
    /// Amount after this part.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub remaining: u64,
    /// Whether there is more after this part already.
    pub has_more: bool,
    /// Start of the kept output.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub available_from: u64,
    /// Number of the first line here, as in ssh_tail; absent if there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_line_no: Option<u64>,
    /// Number of the last line here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_line_no: Option<u64>,
    /// Numbers of the lines here that are stderr; absent if none is.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stderr_lines: Vec<u64>,
    /// Whether the job still runs.
    pub still_running: bool,
    /// State, exit_status and exit_signal.
    #[serde(flatten)]
    pub standing: Standing,
    /// Whether the job seems to wait for input.
    #[serde(default, skip_serializing_if = "is_false")]
    pub awaiting_input: bool,
    /// Arguments that were out of range, and the values used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

const LINES: i64 = 1000;
const CHARS: i64 = 8000;
const MOST_CHARS: i64 = 32_000;

impl Service {
    /// Reads a part of a job's output by its position, without waiting. The same call returns the
    /// same answer until eviction, which changes no position. A position after the end returns
    /// nothing, without an error.
    pub async fn read(&self, request: ReadRequest) -> Result<ReadReply, Error> {
        let job = self.readable(Verb::Read, &request.job_id).await?;
        let mut clamps = Clamps::default();
        if request.unit == UnitArg::Screen {
            return self.read_screen(&job, &request, clamps).await;
        }
        if request.since_version.is_some() || request.wait_ms != 0 {
            let hint = "use unit=screen, or omit them; ssh_tail waits for lines";
            return Err(Error::invalid(
                "since_version and wait_ms are for screens",
                hint,
            ));
        }
        if request.render == RenderArg::Spans {
            let hint = "ssh_tail returns them, with format=records; so does unit=screen";
            return Err(Error::invalid("only records and screens have spans", hint));
        }
        let query = self.read_query(&request, &mut clamps)?;
        let (reading, status) = job.read(&query).await;
        let standing = Standing::of(&status);
        let mut reply = ReadReply {
            lines: None,
            content: None,
            screen: None,
            unit: request.unit,
            offset: reading.offset,
            returned: reading.returned(),
            total: reading.total,
            remaining: reading.remaining(),
            has_more: reading.remaining() > 0,
            available_from: reading.available_from,
            first_line_no: None,
            last_line_no: None,
            stderr_lines: Vec::new(),
            still_running: !standing.state.is_final(),
            standing,
            awaiting_input: job.awaits_input(query.selection).await,
            clamped: clamps.0,
        };
        match reading.content {
            Content::Lines(lines) => reply.fill(&job, lines),
            Content::Chars(text) => reply.content = Some(text),
            Content::Bytes(bytes) => {
                reply.content = Some(encode(&bytes, request.encoding, query.render))
            }
        }
        Ok(reply)
    }

    /// The screen of a terminal job, once it is newer than the caller's version or the wait is over.
    async fn read_screen(
        &self,
        job: &ReadableJob,
        request: &ReadRequest,
        mut clamps: Clamps,
    ) -> Result<ReadReply, Error> {
        let is_positioned =
            request.offset != 0 || request.length.is_some() || request.limit.is_some();
        if is_positioned || request.encoding == Encoding::Base64 {
            let hint = "omit offset, length and encoding";
            return Err(Error::invalid("a screen is read as a whole", hint));
        }
        let longest = self.longest_wait_ms();
        let wait = ScreenWait {
            patience: Duration::from_millis(clamps.wait_ms("wait_ms", request.wait_ms, longest)),
            newer_than: request.since_version,
            ..ScreenWait::default()
        };
        let view = self.screen_of(job, wait).await?;
        let standing = Standing::of(&job.status());
        let styled_rows =
            (request.render == RenderArg::Spans).then(|| styled_rows(&view, request.since_version));
        let screen = Screen {
            styled_rows,
            ..Screen::of(view, request.since_version)
        };
        Ok(ReadReply {
            lines: None,
            content: None,
            unit: UnitArg::Screen,
            offset: 0,
            returned: screen.row_count(),
            total: screen.row_count(),
            remaining: 0,
            has_more: false,
            available_from: 0,
            first_line_no: None,
            last_line_no: None,
            stderr_lines: Vec::new(),
            still_running: !standing.state.is_final(),
            standing,
            awaiting_input: job.awaits_input(request.stream.into()).await,
            clamped: clamps.0,
            screen: Some(screen),
        })
    }

    fn read_query(&self, request: &ReadRequest, clamps: &mut Clamps) -> Result<ReadQuery, Error> {
        if request.encoding == Encoding::Base64 && request.unit != UnitArg::Bytes {
            let hint = "use encoding=base64 with unit=bytes, or omit it";
            return Err(Error::invalid("only bytes can be read as base64", hint));
        }
        let (unit, default, most) = match request.unit {
            UnitArg::Lines => (Unit::Lines, LINES, MOST_LINES),
            UnitArg::Chars => (Unit::Chars, CHARS, MOST_CHARS),
            UnitArg::Bytes | UnitArg::Screen => (Unit::Bytes, CHARS, MOST_CHARS),
        };
        let (name, length) = match (request.length, request.limit) {
            (Some(_), Some(_)) => {
                let hint = "omit one of them";
                return Err(Error::invalid("length and limit mean the same", hint));
            }
            (None, Some(limit)) => ("limit", limit),
            (length, None) => ("length", length.unwrap_or(default)),
        };
        let max_bytes = request.max_bytes.unwrap_or(i64::from(self.defaults().max_bytes));
        Ok(ReadQuery {
            unit,
            offset: request.offset,
            length: clamps.size(name, length, 1..=most)?,
            max_bytes: clamps.size("max_bytes", max_bytes, 1..=MOST_BYTES)?,
            selection: request.stream.into(),
            render: request.render.into(),
        })
    }
}

impl ReadReply {
    fn fill(&mut self, job: &Job, lines: Vec<Line>) {
        self.first_line_no = lines.first().map(|line| line.line_no.value());
        self.last_line_no = lines.last().map(|line| line.line_no.value());
        let on_stderr = lines.iter().filter(|line| line.stream == Stream::Stderr);
        self.stderr_lines = on_stderr.map(|line| line.line_no.value()).collect();
        self.lines = Some(lines.into_iter().map(|line| job.display(line)).collect());
    }
}

fn encode(bytes: &[u8], encoding: Encoding, how: Render) -> String {
    match encoding {
        Encoding::Base64 => BASE64_STANDARD.encode(bytes),
        Encoding::Utf8 => render(bytes, how).into_owned(),
    }
}
