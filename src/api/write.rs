use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use schemars::JsonSchema;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};

use super::{Code, Error, Service, TailReply, TailRequest};
use crate::job::key_bytes;

/// Write to a job's stdin, or end it.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WriteRequest {
    /// The job, as ssh_spawn named it.
    pub job_id: String,
    /// Text to write; at most 1 MiB. Never logged.
    #[serde(default)]
    #[schemars(with = "String")]
    pub data: Option<SecretString>,
    /// Bytes to write, as base64, after data.
    #[serde(default)]
    #[schemars(with = "String")]
    pub data_base64: Option<SecretString>,
    /// Keys to press after that: ctrl+a to ctrl+z, esc, tab, enter, backspace, up, down, left, right, home, end, pageup,
    /// pagedown, delete, f1 to f12.
    #[serde(default)]
    pub keys: Vec<String>,
    /// Write a line end last.
    #[serde(default)]
    pub newline: bool,
    /// End stdin afterwards, so that the command sees the end of its input.
    #[serde(default)]
    pub close_after: bool,
    /// Then wait so many milliseconds for a new line and return it, as ssh_tail would.
    #[serde(default)]
    pub wait_ms: i64,
    /// With wait_ms: wait until the job has printed nothing for so many milliseconds.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub quiet_ms: Option<i64>,
}

/// What was written.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct WriteReply {
    /// How many bytes the command's side has taken.
    pub bytes_written: usize,
    /// Whether stdin has ended.
    pub stdin_closed: bool,
    /// What the job printed since, when wait_ms was given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "TailReply")]
    pub tail: Option<Box<TailReply>>,
}

/// How long a command that does not read is waited for.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
const MOST_BYTES: usize = 1 << 20;

impl Service {
    /// Writes to a job's stdin and may wait for what the job answers.
    ///
    /// A command that does not read gives `backpressure` within ten seconds, and the error says how much went. Cancelling
    /// may leave a part written.
    pub async fn write(&self, request: WriteRequest) -> Result<WriteReply, Error> {
        let job = self.job(&request.job_id)?;
        let data = request.bytes()?;
        let cursor = job.status().total_lines;
        let was_closed = self.runner.is_stdin_closed(&job)?;
        if !data.expose_secret().is_empty() {
            self.runner.write(&job, data.expose_secret(), PATIENCE).await?;
        }
        if request.close_after {
            self.runner.close_stdin(&job, PATIENCE).await?;
        }
        let tail = if request.wait_ms != 0 {
            let tail = TailRequest {
                wait_ms: request.wait_ms,
                quiet_ms: request.quiet_ms,
                ..TailRequest::new(request.job_id, cursor, 0)
            };
            Some(Box::new(self.tail(tail).await?))
        } else {
            None
        };
        let stdin_closed = was_closed || request.close_after;
        Ok(WriteReply { bytes_written: data.expose_secret().len(), stdin_closed, tail })
    }
}

impl WriteRequest {
    fn bytes(&self) -> Result<secrecy::SecretSlice<u8>, Error> {
        let mut bytes =
            self.data.as_ref().map_or_else(Vec::new, |data| data.expose_secret().as_bytes().to_vec());
        if let Some(encoded) = &self.data_base64 {
            let decoded = BASE64_STANDARD.decode(encoded.expose_secret().trim()).map_err(|_| {
                Error::new(
                    Code::InvalidArgument,
                    "data_base64 is not base64",
                    "use the standard alphabet, with padding",
                )
            })?;
            bytes.extend(decoded);
        }
        for key in &self.keys {
            let hint =
                "use ctrl+a to ctrl+z, esc, tab, enter, the arrows, home, end, pageup, pagedown, f1 to f12";
            let pressed = key_bytes(key)
                .ok_or_else(|| Error::new(Code::InvalidArgument, format!("there is no key {key:?}"), hint))?;
            bytes.extend(pressed);
        }
        if self.newline {
            bytes.push(b'\n');
        }
        if bytes.len() > MOST_BYTES {
            let message = format!("{} bytes are too many for one write", bytes.len());
            return Err(Error::new(Code::InvalidArgument, message, "write at most 1 MiB at a time"));
        }
        Ok(bytes.into())
    }
}
