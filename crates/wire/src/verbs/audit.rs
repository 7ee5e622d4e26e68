//! The audit log of one job.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::{Code, Service};
use sshjobs_core::jobs::{Verb, visible_text};

/// Lines of the audit log about a job.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct AuditReply {
    /// The newest 1000 lines, oldest first: the decision that started the job, with its votes; decisions on
    /// other calls about it; its end.
    pub lines: Vec<AuditLine>,
}

/// A line of the audit log.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct AuditLine {
    /// Its number in the log.
    pub seq: u64,
    /// When it was written, in UTC (ISO 8601).
    pub time: String,
    /// The event, in words.
    pub text: String,
}

/// Maximum lines of a reply.
const MOST_LINES: usize = 1000;

impl Service {
    /// The lines of this process's audit log about a job that the caller may read. In a cluster, other
    /// replicas may have more.
    pub async fn audit(&self, job_id: &str) -> Result<AuditReply, Error> {
        let job = self.job(Verb::Read, job_id).await?;
        let Some(lines) = self.library().audit_lines(&job, MOST_LINES).await else {
            return Err(Error::new(
                Code::NotFound,
                "this server keeps no audit log",
                "name one in the table [audit] of a policy",
            ));
        };
        let lines = lines.map_err(|why| {
            tracing::warn!(why, "the audit log can't be read");
            Error::new(
                Code::Io,
                "the audit log can't be read",
                "the server's log says why",
            )
        })?;
        let lines = lines.into_iter().map(|line| AuditLine {
            seq: line.seq,
            text: visible_text(&line.event_in_words()),
            time: line.time,
        });
        Ok(AuditReply {
            lines: lines.collect(),
        })
    }
}
