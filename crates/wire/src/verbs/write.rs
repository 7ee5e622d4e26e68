//! The verb write: text, bytes and keys.

use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::paste::{BRACKETS, add_pasted};
use super::screen::Screen;
use super::tail::{KnownOutput, LEAST_QUIET_MS, TailReply, TailRequest, optional_regex};
use crate::clamp::Clamps;
use crate::error::Error;
use crate::leave_out::is_false;
use crate::secret::reveal;
use crate::{Clamped, KeepArg, Service};
use sshjobs_core::jobs::{
    self, Job, LineNo, PageQuery, ReadableJob, ScreenWait, SecretInput, SilenceFrom, Terminal,
    TerminalModes, TerminalSize, Verb, Wait, WriteError, key_bytes,
};

/// Write to a job's stdin, or close it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteRequest {
    /// Job from ssh_spawn.
    pub job_id: String,
    /// Text to write, up to 1 MiB. Never logged.
    #[serde(default, serialize_with = "reveal")]
    #[schemars(with = "String")]
    pub data: Option<SecretString>,
    /// Bytes in base64, written after data.
    #[serde(default, serialize_with = "reveal")]
    #[schemars(with = "String")]
    pub data_base64: Option<SecretString>,
    /// Name of a secret to write next.
    #[serde(default)]
    pub secret_name: Option<String>,
    /// Keys to press afterwards, with pty, such as ctrl+c, esc, up, f1.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Press enter last.
    #[serde(default)]
    pub newline: bool,
    /// Close stdin afterwards (ctrl+d on a terminal).
    #[serde(default)]
    pub close_after: bool,
    /// Don't even log the length.
    #[serde(default)]
    pub secret: bool,
    /// New terminal width; needs rows.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub cols: Option<i64>,
    /// New terminal height; needs cols.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub rows: Option<i64>,
    /// Longest wait for an answer, in milliseconds.
    #[serde(default)]
    pub wait_ms: i64,
    /// Return once nothing was printed for this many milliseconds. Default: 200, once an answer has begun.
    #[serde(default)]
    pub quiet_ms: Option<i64>,
    /// screen: return the screen once it has changed and is quiet.
    #[serde(default)]
    pub unit: WriteUnit,
    /// As in ssh_tail.
    #[serde(default)]
    pub keep: KeepArg,
    /// As in ssh_tail.
    #[serde(default)]
    pub filter: Option<String>,
}

impl WriteRequest {
    /// A request that writes nothing to `job_id` yet.
    pub fn new(job_id: impl Into<String>) -> Self {
        Self {
            job_id: job_id.into(),
            ..Self::default()
        }
    }
}

/// What a write returns besides its result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum WriteUnit {
    /// With wait_ms: the lines printed since.
    #[default]
    Lines,
    /// The screen.
    Screen,
}

/// Result of a write.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WriteReply {
    /// Number of bytes that the host has accepted.
    pub bytes_written: usize,
    /// Whether stdin is closed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stdin_closed: bool,
    /// Output printed since, if wait_ms was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TailReply")]
    pub tail: Option<Box<TailReply>>,
    /// What the terminal shows, with unit screen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Screen")]
    pub screen: Option<Box<Screen>>,
    /// Whether the job still runs, with unit screen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub still_running: Option<bool>,
    /// Arguments that were out of range, and the values used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub clamped: Vec<Clamped>,
}

/// The state of a job before a write.
struct BeforeWrite {
    /// The job, for the output that the reply has.
    shown: Option<ReadableJob>,
    was_closed: bool,
    /// Version of its screen, if the screen is wanted.
    screen_version: Option<u64>,
    total_lines: u64,
    /// What is no answer to the write.
    known: KnownOutput,
}

/// Time limit for a command to read the data.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_BYTES: usize = 1 << 20;
/// Default of `wait_ms` for a write that returns the screen.
const SCREEN_WAIT_MS: i64 = 2000;
/// Default of `quiet_ms`: an answer may be printed piece by piece.
const QUIET_MS: i64 = 200;

impl Service {
    /// Writes to a job's stdin, and optionally waits for the job's answer.
    ///
    /// A command that does not read causes `backpressure` within ten seconds, and the error has the
    /// number of bytes written. Cancelling may leave a part written.
    pub async fn write(&self, request: WriteRequest) -> Result<WriteReply, Error> {
        if let Some(replica) = self.replica_of_job(&request.job_id).await {
            return self.perform_at(&replica, "write", &request).await;
        }
        let job = self.job(Verb::Write, &request.job_id).await?;
        // Before anything is written: a caller that gets an error may write again.
        let shown = self.shown_after(&request).await?;
        let enter = if job.has_terminal() { b'\r' } else { b'\n' };
        let size = request.size()?;
        request.check()?;
        // A job that is still starting refuses every write.
        job.started_within(PATIENCE).await;
        let screen_before = match (request.unit, &shown) {
            (WriteUnit::Screen, Some(shown)) => {
                Some(shown.screen(&ScreenWait::default()).await?.version)
            }
            (WriteUnit::Screen | WriteUnit::Lines, _) => None,
        };
        // Before the write, so that the tail below begins with the answer to it.
        let before = job.status();
        // Also refuses a job that has ended, even if there is nothing to write.
        let was_closed = job.is_stdin_closed().await?;
        let input = request.input(enter, before.terminal_modes)?;
        let mut known = KnownOutput {
            bytes: before.total_bytes,
            silence_from: SilenceFrom::Call,
        };
        if let Some(shown) = &shown
            && request.waits_for_answer()
        {
            known.silence_from = request.silence_from(shown, &input, before.total_lines).await?;
        }
        if let Some(size) = size {
            job.resize(size).await?;
        }
        let bytes_written = request.send(&job, &input).await?;
        let state_before = BeforeWrite {
            was_closed,
            shown,
            screen_version: screen_before,
            total_lines: before.total_lines,
            known,
        };
        self.finish_write(&job, request, bytes_written, state_before)
            .await
            .map_err(|error| after_writing(bytes_written, error))
    }

    /// The job, for the output that a write returns. `None` if it returns none.
    async fn shown_after(&self, request: &WriteRequest) -> Result<Option<ReadableJob>, Error> {
        let verb = match request.unit {
            WriteUnit::Screen => Verb::Read,
            WriteUnit::Lines if request.wait_ms != 0 => Verb::Tail,
            WriteUnit::Lines => return Ok(None),
        };
        self.readable(verb, &request.job_id).await.map(Some)
    }

    /// Closes stdin, and waits for the answer to a write.
    async fn finish_write(
        &self,
        job: &Job,
        request: WriteRequest,
        bytes_written: usize,
        before: BeforeWrite,
    ) -> Result<WriteReply, Error> {
        if request.close_after {
            match job.close_stdin(PATIENCE).await {
                // The command read the data and ended before the close.
                Err(jobs::Error::Write(WriteError::JobEnded)) if bytes_written > 0 => {}
                closed => closed?,
            }
        }
        // On a terminal `close_after` sends ctrl+d, and more can be written after it.
        let stdin_closed = before.was_closed || (request.close_after && !job.has_terminal());
        let mut reply = WriteReply {
            bytes_written,
            stdin_closed,
            tail: None,
            screen: None,
            still_running: None,
            clamped: Vec::new(),
        };
        let Some(shown) = &before.shown else { return Ok(reply) };
        if let Some(version) = before.screen_version {
            let mut clamps = Clamps::default();
            let wait = self.screen_wait(&request, version, &mut clamps);
            reply.clamped = clamps.0;
            let view = self.screen_of(shown, wait).await?;
            reply.screen = Some(Box::new(Screen::of(view, None)));
            reply.still_running = Some(!job.is_over());
        } else if request.wait_ms != 0 {
            let tail = TailRequest {
                wait_ms: request.wait_ms,
                quiet_ms: if request.waits_for_answer() {
                    Some(QUIET_MS)
                } else {
                    request.quiet_ms
                },
                keep: request.keep,
                filter: request.filter,
                ..TailRequest::new(request.job_id, before.total_lines, 0)
            };
            let answer = self.tail_allowed(shown, tail, before.known).await?;
            reply.tail = Some(Box::new(answer));
        }
        Ok(reply)
    }

    /// How long to wait for a screen that shows the effect of a write.
    fn screen_wait(&self, request: &WriteRequest, before: u64, clamps: &mut Clamps) -> ScreenWait {
        let wait_ms = if request.wait_ms == 0 {
            SCREEN_WAIT_MS
        } else {
            request.wait_ms
        };
        let longest = self.longest_wait_ms();
        let patience = clamps.wait_ms("wait_ms", wait_ms, longest);
        let most_quiet = i64::try_from(patience).unwrap_or(i64::MAX).max(LEAST_QUIET_MS);
        let quiet_ms = request.quiet_ms.unwrap_or(QUIET_MS);
        let quiet = clamps.clamp("quiet_ms", quiet_ms, LEAST_QUIET_MS..=most_quiet);
        ScreenWait {
            patience: Duration::from_millis(patience),
            newer_than: Some(before),
            quiet: Some(Duration::from_millis(quiet)),
            until: None,
        }
    }
}

/// An error after input was written: a caller must not write it again.
fn after_writing(bytes_written: usize, error: Error) -> Error {
    if bytes_written == 0 {
        return error;
    }
    let message = format!("the input was written, but then: {}", error.message);
    Error {
        retryable: false,
        bytes_written: Some(bytes_written),
        ..Error::new(error.code, message, "read the job's output with ssh_tail")
    }
}

impl WriteRequest {
    /// Refuses arguments that contradict each other. To be called before anything is written, because
    /// a caller that corrects them writes again.
    fn check(&self) -> Result<(), Error> {
        let is_screen = self.unit == WriteUnit::Screen;
        if is_screen && (self.filter.is_some() || self.keep != KeepArg::First) {
            let hint = "omit them, or omit unit";
            return Err(Error::invalid(
                "keep and filter are for lines, not for a screen",
                hint,
            ));
        }
        optional_regex("filter", self.filter.as_deref())?;
        Ok(())
    }

    fn size(&self) -> Result<Option<TerminalSize>, Error> {
        match (self.cols, self.rows) {
            (None, None) => Ok(None),
            (Some(cols), Some(rows)) => Ok(Some(terminal_size(cols, rows)?)),
            _ => Err(Error::invalid(
                "a size is columns and rows",
                "give cols and rows",
            )),
        }
    }
}

/// The input of a write, wiped when dropped.
struct WrittenInput {
    /// Text and bytes, before a secret.
    before: Zeroizing<Vec<u8>>,
    /// Keys and the last enter, after a secret.
    after: Zeroizing<Vec<u8>>,
}

impl WriteRequest {
    /// The input. Each part is allocated once, so that no copy remains.
    fn input(&self, enter: u8, modes: TerminalModes) -> Result<WrittenInput, Error> {
        let texts = length_of(self.data.as_ref()) + length_of(self.data_base64.as_ref());
        // An upper bound: no key has more than 5 bytes, and base64 only shrinks when decoded.
        let keys = 8 * self.keys.len() + 1;
        if texts + keys + BRACKETS > 2 * MOST_BYTES {
            return Err(too_long(texts + keys));
        }
        let mut before = Zeroizing::new(Vec::with_capacity(texts + BRACKETS));
        if let Some(data) = &self.data {
            let text = data.expose_secret();
            if modes.bracketed_paste {
                add_pasted(&mut before, text);
            } else {
                before.extend_from_slice(text.as_bytes());
            }
        }
        if let Some(encoded) = &self.data_base64 {
            before.extend_from_slice(&decode(encoded)?);
        }
        let mut after = Zeroizing::new(Vec::with_capacity(keys));
        for key in &self.keys {
            after.extend(pressed(key, enter, modes)?);
        }
        if self.newline {
            after.push(enter);
        }
        let length = before.len() + after.len();
        if length > MOST_BYTES {
            return Err(too_long(length));
        }
        Ok(WrittenInput { before, after })
    }

    /// Whether to return once an answer is complete. With a filter, the caller waits for a line.
    fn waits_for_answer(&self) -> bool {
        self.wait_ms != 0 && self.quiet_ms.is_none() && self.filter.is_none()
    }

    /// Silence counts once the output after `cursor` is more than the job's unfinished line, and what a terminal is likely to
    /// repeat of the input.
    async fn silence_from(
        &self,
        job: &ReadableJob,
        input: &WrittenInput,
        cursor: u64,
    ) -> Result<SilenceFrom, Error> {
        if !job.has_terminal() {
            return Ok(SilenceFrom::News);
        }
        let query = PageQuery::after(LineNo::new(cursor));
        let unfinished = job.tail(&query, &Wait::default()).await?.partial;
        let mut text: String = unfinished.into_iter().map(|(_, text)| text).collect();
        let is_hidden = self.secret || self.secret_name.is_some();
        if !is_hidden {
            text.push_str(&echo_of(&input.before));
        }
        text.push_str(&echo_of(&input.after));
        Ok(SilenceFrom::MoreThan(text.into()))
    }

    /// Writes the input, with the secret that is named. Returns the number of bytes.
    async fn send(&self, job: &Job, input: &WrittenInput) -> Result<usize, Error> {
        let WrittenInput { before, after } = input;
        if let Some(name) = &self.secret_name {
            let input = SecretInput {
                name,
                before,
                after,
                is_shown: !self.secret,
            };
            return Ok(job.write_secret(input, PATIENCE).await?);
        }
        let data = Zeroizing::new([before.as_slice(), after.as_slice()].concat());
        if !data.is_empty() {
            send(job, &data, self.secret).await?;
        }
        Ok(data.len())
    }
}

/// What a terminal shows of input. It shows a control key except tab as `^C`, and enter as the end of the line.
fn echo_of(input: &[u8]) -> Zeroizing<String> {
    let mut shown = Zeroizing::new(String::with_capacity(2 * input.len()));
    for character in String::from_utf8_lossy(input).chars() {
        match character {
            '\r' | '\n' => shown.push('\n'),
            '\0'..='\x1f' if character != '\t' => {
                shown.push('^');
                shown.push(char::from(character as u8 ^ 0x40));
            }
            _ => shown.push(character),
        }
    }
    shown
}

fn terminal_size(cols: i64, rows: i64) -> Result<TerminalSize, Error> {
    let terminal = Terminal::new("any", cols, rows).map_err(sshjobs_core::jobs::Error::from)?;
    Ok(terminal.size())
}

fn decode(encoded: &SecretString) -> Result<Zeroizing<Vec<u8>>, Error> {
    BASE64_STANDARD
        .decode(encoded.expose_secret().trim())
        .map(Zeroizing::new)
        .map_err(|_| {
            let hint = "use the standard alphabet, with padding";
            Error::invalid("data_base64 is not base64", hint)
        })
}

fn pressed(key: &str, enter: u8, modes: TerminalModes) -> Result<Vec<u8>, Error> {
    let bytes = key_bytes(key, enter, modes).ok_or_else(|| {
        let hint = "use ctrl+a to ctrl+z, alt+x, esc, tab, enter, backspace, delete, the arrows \
             (up, down, left, right), home, end, pageup, pagedown, f1 to f12; text goes in data";
        Error::invalid(format!("there is no key called {key:?}"), hint)
    })?;
    // In a pipe a key is an ordinary byte, and would not interrupt anything.
    if enter == b'\n' && !matches!(bytes.as_slice(), b"\n" | b"\t" | b" ") {
        let hint = "start the job with pty=true; ssh_signal with INT interrupts this \
            one, close_after ends its stdin";
        let message = format!("{key} is a key of a terminal, and this job has none");
        return Err(Error::invalid(message, hint));
    }
    Ok(bytes)
}

fn too_long(bytes: usize) -> Error {
    let message = format!("{bytes} bytes are too many for one write");
    Error::invalid(message, "write at most 1 MiB at a time")
}

fn length_of(text: Option<&SecretString>) -> usize {
    text.map_or(0, |text| text.expose_secret().len())
}

/// Writes input. A person who has to approve it sees it unless it is a secret.
async fn send(job: &Job, data: &[u8], is_secret: bool) -> Result<(), Error> {
    if is_secret {
        job.write(data, PATIENCE).await?;
    } else {
        job.write_visibly(data, PATIENCE).await?;
    }
    let bytes = (!is_secret).then_some(data.len());
    tracing::debug!(job = job.id(), bytes, "stdin written");
    Ok(())
}
