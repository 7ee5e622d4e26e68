use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use secrecy::zeroize::Zeroizing;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::leave_out::is_false;
use super::secret::reveal;
use super::{Error, KeepArg, Service, TailReply, TailRequest};
use crate::jobs::{Terminal, key_bytes};

/// Write to a job's stdin, or end it.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteRequest {
    /// Job from ssh_spawn.
    pub job_id: String,
    /// Text to write, up to 1 MiB. Never logged.
    #[serde(default, serialize_with = "reveal")]
    #[schemars(with = "String")]
    pub data: Option<SecretString>,
    /// Bytes to write after data.
    #[serde(default, serialize_with = "reveal")]
    #[schemars(with = "String")]
    pub data_base64: Option<SecretString>,
    /// Keys to press then, with pty: ctrl+a to ctrl+z, esc, tab, enter, backspace, delete, arrows, home, end, pageup, pagedown,
    /// f1 to f12.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Press enter last.
    #[serde(default)]
    pub newline: bool,
    /// Then end stdin (ctrl+d on a terminal).
    #[serde(default)]
    pub close_after: bool,
    /// Don't even log the length.
    #[serde(default)]
    pub secret: bool,
    /// New terminal width; with rows.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 1, max = 1000))]
    pub cols: Option<i64>,
    /// New terminal height; with cols.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 1, max = 1000))]
    pub rows: Option<i64>,
    /// Then wait this long for output, as ssh_tail does.
    #[serde(default)]
    pub wait_ms: i64,
    /// With wait_ms: wait until nothing was printed for this long.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub quiet_ms: Option<i64>,
    /// As in ssh_tail.
    #[serde(default)]
    pub keep: KeepArg,
    /// As in ssh_tail.
    #[serde(default)]
    #[schemars(with = "String")]
    pub filter: Option<String>,
}

impl WriteRequest {
    /// A request that writes nothing to `job_id` yet.
    pub fn new(job_id: impl Into<String>) -> Self {
        Self { job_id: job_id.into(), ..Self::default() }
    }
}

/// What was written.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct WriteReply {
    /// How many bytes the command's side has taken.
    pub bytes_written: usize,
    /// Whether stdin has ended.
    #[serde(default, skip_serializing_if = "is_false")]
    pub stdin_closed: bool,
    /// What the job printed since, when wait_ms was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TailReply")]
    pub tail: Option<Box<TailReply>>,
}

/// Time limit for a command to read what is written.
const PATIENCE: Duration = Duration::from_secs(10);
const MOST_BYTES: usize = 1 << 20;

impl Service {
    /// Writes to a job's stdin and may wait for what the job answers.
    ///
    /// A command that does not read gives `backpressure` within ten seconds, and the error says how much went. Cancelling
    /// may leave a part written.
    pub async fn write(&self, request: WriteRequest) -> Result<WriteReply, Error> {
        let job = self.job(&request.job_id).await?;
        let enter = if job.has_terminal() { b'\r' } else { b'\n' };
        let data = request.bytes(enter)?;
        let size = request.size()?;
        job.started_within(PATIENCE).await;
        let before = job.status();
        let was_closed = job.is_stdin_closed()?;
        if let Some(size) = size {
            job.resize(size).await?;
        }
        if !data.is_empty() {
            job.write(&data, PATIENCE).await?;
            let bytes = (!request.secret).then_some(data.len());
            tracing::debug!(job = job.id(), bytes, "stdin written");
        }
        if request.close_after {
            job.close_stdin(PATIENCE).await?;
        }
        let tail = if request.wait_ms != 0 {
            let tail = TailRequest {
                wait_ms: request.wait_ms,
                quiet_ms: request.quiet_ms,
                keep: request.keep,
                filter: request.filter,
                ..TailRequest::new(request.job_id, before.total_lines, 0)
            };
            Some(Box::new(self.tail_behind(tail, before.total_bytes).await?))
        } else {
            None
        };
        let stdin_closed = was_closed || (request.close_after && !job.has_terminal());
        Ok(WriteReply { bytes_written: data.len(), stdin_closed, tail })
    }
}

impl WriteRequest {
    fn size(&self) -> Result<Option<(u32, u32)>, Error> {
        match (self.cols, self.rows) {
            (None, None) => Ok(None),
            (Some(cols), Some(rows)) => Ok(Some(terminal_size(cols, rows)?)),
            _ => Err(Error::invalid("a size is columns and rows", "give cols and rows")),
        }
    }

    /// What is to be written; wiped when dropped. The room is taken in one piece, so that no copy stays behind.
    fn bytes(&self, enter: u8) -> Result<Zeroizing<Vec<u8>>, Error> {
        let text = |part: &Option<SecretString>| part.as_ref().map_or(0, |part| part.expose_secret().len());
        let room = text(&self.data) + text(&self.data_base64) + 8 * self.keys.len() + 1;
        if room > 2 * MOST_BYTES {
            return Err(too_long(room));
        }
        let mut bytes = Zeroizing::new(Vec::with_capacity(room));
        bytes.extend(self.data.as_ref().map_or(&[][..], |data| data.expose_secret().as_bytes()));
        if let Some(encoded) = &self.data_base64 {
            bytes.extend_from_slice(&decode(encoded)?);
        }
        for key in &self.keys {
            bytes.extend(pressed(key, enter)?);
        }
        if self.newline {
            bytes.push(enter);
        }
        if bytes.len() > MOST_BYTES { Err(too_long(bytes.len())) } else { Ok(bytes) }
    }
}

fn terminal_size(cols: i64, rows: i64) -> Result<(u32, u32), Error> {
    let terminal = Terminal::new("any", (cols, rows)).map_err(crate::jobs::Error::from)?;
    Ok((terminal.cols, terminal.rows))
}

fn decode(encoded: &SecretString) -> Result<Zeroizing<Vec<u8>>, Error> {
    BASE64_STANDARD.decode(encoded.expose_secret().trim()).map(Zeroizing::new).map_err(|_| {
        let hint = "use the standard alphabet, with padding";
        Error::invalid("data_base64 is not base64", hint)
    })
}

fn pressed(key: &str, enter: u8) -> Result<Vec<u8>, Error> {
    let bytes = key_bytes(key, enter).ok_or_else(|| {
        let hint =
            "use ctrl+a to ctrl+z, esc, tab, enter, the arrows, home, end, pageup, pagedown, f1 to f12";
        Error::invalid(format!("there is no key {key:?}"), hint)
    })?;
    // Into a pipe a key is a byte like any other; nobody would be interrupted by it.
    if enter == b'\n' && !matches!(bytes.as_slice(), b"\n" | b"\t" | b" ") {
        let hint = "start the job with pty=true; ssh_signal with INT interrupts this one, close_after ends its stdin";
        let message = format!("{key} is a key of a terminal, and this job has none");
        return Err(Error::invalid(message, hint));
    }
    Ok(bytes)
}

fn too_long(bytes: usize) -> Error {
    let message = format!("{bytes} bytes are too many for one write");
    Error::invalid(message, "write at most 1 MiB at a time")
}
