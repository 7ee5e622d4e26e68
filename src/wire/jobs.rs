use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clamp::Clamps;
use super::leave_out::{is_false, is_zero};
use super::{Clamped, Error, JobState, Service, Standing};
use crate::jobs::{Caller, Filter, Job, Summary};

/// List jobs, the newest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobsRequest {
    /// On this host.
    #[serde(default)]
    #[schemars(with = "String")]
    pub host: Option<String>,
    /// With this label.
    #[serde(default)]
    #[schemars(with = "String")]
    pub label: Option<String>,
    /// In this state.
    #[serde(default)]
    #[schemars(with = "JobState")]
    pub state: Option<JobState>,
    /// Default 100.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub limit: Option<i64>,
}

/// The jobs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct JobsReply {
    /// The jobs, the newest first.
    pub jobs: Vec<JobEntry>,
    /// How many fit the filter.
    pub total: usize,
    /// Arguments that were out of range, and what was used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

/// One job at this moment. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct JobEntry {
    /// The job.
    pub job_id: String,
    /// Whose it is, when it is another caller's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub caller: Option<String>,
    /// The host it runs on.
    pub host: String,
    /// The command; its first 200 characters.
    pub command: String,
    /// Its label, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub label: Option<String>,
    /// State, exit_status and exit_signal.
    #[serde(flatten)]
    pub standing: Standing,
    /// The process that records it, when that is not this one: only it writes to the job's stdin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub owner: Option<String>,
    /// Whether it outlives its server and the connection.
    #[serde(default, skip_serializing_if = "is_false")]
    pub durable: bool,
    /// It was lost, and something of it may still run on the host.
    #[serde(default, skip_serializing_if = "is_false")]
    pub has_leftovers: bool,
    /// When it was started.
    pub started_at: u64,
    /// When its first byte came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub first_output_at: Option<u64>,
    /// When its newest byte came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub last_output_at: Option<u64>,
    /// When it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "u64")]
    pub ended_at: Option<u64>,
    /// Lines it has printed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub total_lines: u64,
    /// Bytes it has printed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub total_bytes: u64,
    /// Lines that are no longer kept.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped_lines: u64,
    /// Milliseconds since it last printed anything.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub silent_ms: u64,
    /// The last lines it has printed, where they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
}

const SHOWN_OF_COMMAND: usize = 200;

impl Service {
    /// Lists jobs, the newest first.
    pub async fn jobs(&self, request: JobsRequest) -> Result<JobsReply, Error> {
        let mut clamps = Clamps::default();
        let limit = clamps.size("limit", request.limit.unwrap_or(100), 1..=1000)?;
        let filter = Filter {
            host: request.host,
            label: request.label,
            state: request.state.map(JobState::as_str),
            limit,
            ..Filter::default()
        };
        let (found, total) = self.jobs.list(filter).await?;
        let own = self.jobs.caller();
        let jobs = found.into_iter().map(|summary| JobEntry::of_summary(summary, own)).collect();
        Ok(JobsReply { jobs, total, clamped: clamps.0 })
    }
}

impl Service {
    /// How a job stands, in a few words; none when there is no such job.
    pub async fn standing(&self, job_id: &str) -> Option<String> {
        let status = self.job(job_id).await.ok()?.status();
        let silent = status.silent.as_secs();
        Some(format!("{}, {} lines, silent for {silent} s", Standing::of(&status), status.total_lines))
    }
}

impl JobEntry {
    /// A job as it stands now.
    pub fn of(job: &Job) -> Self {
        Self::of_summary(job.summary(), job.seen_by())
    }

    /// A job in a list, as `reader` sees it.
    fn of_summary(summary: Summary, reader: &Caller) -> Self {
        let Summary { id, caller, host, command, label, durable, status, owner, has_leftovers } = summary;
        Self {
            job_id: id.as_str().to_owned(),
            caller: (caller != *reader).then(|| caller.as_str().to_owned()),
            host,
            command: shortened(&command, SHOWN_OF_COMMAND),
            label,
            standing: Standing::of(&status),
            owner,
            durable,
            has_leftovers,
            started_at: status.started_at,
            first_output_at: status.first_output_at,
            last_output_at: status.last_output_at,
            ended_at: status.ended_at,
            total_lines: status.total_lines,
            total_bytes: status.total_bytes,
            dropped_lines: status.dropped_lines,
            silent_ms: u64::try_from(status.silent.as_millis()).unwrap_or(u64::MAX),
            last_lines: Vec::new(),
        }
    }
}

/// The first `most` characters of a command, so that a list of jobs does not grow with their scripts.
pub(super) fn shortened(command: &str, most: usize) -> String {
    match command.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", command.split_at(end).0),
        None => command.to_owned(),
    }
}
