use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clamp::Clamps;
use super::leave_out::{is_false, is_zero};
use super::tail::{MOST_BYTES, MOST_LINES};
use super::{Clamped, Error, RenderArg, Service, Standing, StreamArg};
use crate::jobs::{Content, Line, ReadQuery, Render, Stream, Unit, render};

/// Read a part of a job's output by its position.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReadRequest {
    /// Job from ssh_spawn.
    pub job_id: String,
    /// What offset and length count.
    #[serde(default)]
    pub unit: UnitArg,
    /// How much to skip; negative counts from the end: -20 is the last 20.
    #[serde(default)]
    pub offset: i64,
    /// How much to return. Default 1000 lines, 8000 chars or bytes.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub length: Option<i64>,
    /// Same as length.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub limit: Option<i64>,
    /// Bytes of lines to return. Default 32768.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub max_bytes: Option<i64>,
    /// Positions count within it.
    #[serde(default)]
    pub stream: StreamArg,
    /// clean: without control sequences.
    #[serde(default)]
    pub render: RenderArg,
    /// base64: bytes exactly as they came.
    #[serde(default)]
    pub encoding: Encoding,
}

impl ReadRequest {
    /// A request for the first lines of `job_id`.
    pub fn new(job_id: impl Into<String>) -> Self {
        Self { job_id: job_id.into(), ..Self::default() }
    }
}

/// What positions count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum UnitArg {
    /// Finished lines.
    #[default]
    Lines,
    /// Characters of the rendered text.
    Chars,
    /// Bytes as they came.
    Bytes,
}

/// How bytes are written in a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum Encoding {
    /// As text.
    #[default]
    Utf8,
    /// As base64, exactly.
    Base64,
}

/// A part of the output. Positions count the unit, within the streams asked for, since the job began.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ReadReply {
    /// The lines (unit lines).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub lines: Option<Vec<String>>,
    /// The text (unit chars), or the bytes in the encoding asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub content: Option<String>,
    /// What positions count here.
    pub unit: UnitArg,
    /// Where this part begins: later than asked for when that is no longer kept.
    pub offset: u64,
    /// How much is here; offset + returned is where the next part begins.
    pub returned: u64,
    /// How much there is in all, so far. A running job's unfinished line counts only in bytes of one stream.
    pub total: u64,
    /// How much comes behind this part.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub remaining: u64,
    /// Whether there is more behind this part already.
    pub has_more: bool,
    /// Where the part that is still kept begins.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub available_from: u64,
    /// Number of the first line here, as ssh_tail counts; absent when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub first_line_no: Option<u64>,
    /// Number of the last line here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub last_line_no: Option<u64>,
    /// Numbers of the lines here that are stderr; absent when none is.
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
    /// Arguments that were out of range, and what was used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

const LINES: i64 = 1000;
const CHARS: i64 = 8000;
const MOST_CHARS: i64 = 32_000;

impl Service {
    /// Reads a part of a job's output by its position, at once. The same call gives the same answer until eviction, which
    /// moves no position. Past the end there is nothing, and that is no error.
    pub async fn read(&self, request: ReadRequest) -> Result<ReadReply, Error> {
        let job = self.job(&request.job_id).await?;
        let mut clamps = Clamps::default();
        let query = self.read_query(&request, &mut clamps)?;
        let (reading, status) = job.read(&query).await;
        let standing = Standing::of(&status);
        let mut reply = ReadReply {
            lines: None,
            content: None,
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
            Content::Lines(lines) => reply.fill(lines),
            Content::Chars(text) => reply.content = Some(text),
            Content::Bytes(bytes) => reply.content = Some(encode(&bytes, request.encoding, query.render)),
        }
        Ok(reply)
    }

    fn read_query(&self, request: &ReadRequest, clamps: &mut Clamps) -> Result<ReadQuery, Error> {
        if request.encoding == Encoding::Base64 && request.unit != UnitArg::Bytes {
            let hint = "use encoding=base64 with unit=bytes, or leave it away";
            return Err(Error::invalid("only bytes can be read as base64", hint));
        }
        let (unit, default, most) = match request.unit {
            UnitArg::Lines => (Unit::Lines, LINES, MOST_LINES),
            UnitArg::Chars => (Unit::Chars, CHARS, MOST_CHARS),
            UnitArg::Bytes => (Unit::Bytes, CHARS, MOST_CHARS),
        };
        let (name, length) = match (request.length, request.limit) {
            (Some(_), Some(_)) => {
                let hint = "leave one of them away";
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
    fn fill(&mut self, lines: Vec<Line>) {
        let number = |line: &Line| line.line_no.value();
        self.first_line_no = lines.first().map(number);
        self.last_line_no = lines.last().map(number);
        self.stderr_lines = lines.iter().filter(|line| line.stream == Stream::Stderr).map(number).collect();
        self.lines = Some(lines.into_iter().map(|line| line.text).collect());
    }
}

fn encode(bytes: &[u8], encoding: Encoding, how: Render) -> String {
    match encoding {
        Encoding::Base64 => BASE64_STANDARD.encode(bytes),
        Encoding::Utf8 => render(bytes, how).into_owned(),
    }
}
