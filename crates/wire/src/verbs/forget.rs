//! The verb forget.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::{Service, StreamArg};
use sshjobs_core::jobs::Verb;

/// Delete a job's output, or the job itself.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForgetRequest {
    /// Job from ssh_spawn.
    pub job_id: String,
    /// output: delete only the output.
    #[serde(default)]
    pub what: ForgetWhat,
    /// Stream to delete, with what=output.
    #[serde(default)]
    pub stream: StreamArg,
    /// Kill the job first if it still runs.
    #[serde(default)]
    pub force: bool,
}

impl ForgetRequest {
    /// A request to delete `job_id`.
    pub fn new(job_id: impl Into<String>) -> Self {
        Self {
            job_id: job_id.into(),
            ..Self::default()
        }
    }
}

/// What to delete.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ForgetWhat {
    /// The job and its output.
    #[default]
    Job,
    /// Only its output.
    Output,
}

/// Amount of deleted output.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ForgetReply {
    /// Number of deleted lines.
    pub forgotten_lines: u64,
    /// Number of deleted bytes.
    pub forgotten_bytes: u64,
}

impl Service {
    /// Deletes output, or a job. A running job needs `force`, which kills it. Line numbers are
    /// never reused.
    pub async fn forget(&self, request: ForgetRequest) -> Result<ForgetReply, Error> {
        if let Some(replica) = self.replica_of_job(&request.job_id).await {
            return self.perform_at(&replica, "forget", &request).await;
        }
        let job = self.job(Verb::Forget, &request.job_id).await?;
        if request.what == ForgetWhat::Job && request.stream != StreamArg::Both {
            let hint = "use what=output to delete one stream, or omit stream";
            return Err(Error::invalid("a job can't be forgotten by stream", hint));
        }
        if request.what == ForgetWhat::Output {
            let (forgotten_lines, forgotten_bytes) =
                job.forget_output(request.stream.into()).await?;
            return Ok(ForgetReply {
                forgotten_lines,
                forgotten_bytes,
            });
        }
        let forgotten = if request.force {
            job.kill_and_forget().await
        } else {
            job.forget().await
        };
        let (forgotten_lines, forgotten_bytes) = forgotten?;
        Ok(ForgetReply {
            forgotten_lines,
            forgotten_bytes,
        })
    }
}
