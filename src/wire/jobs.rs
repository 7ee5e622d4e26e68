use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clamp::Clamps;
use super::leave_out::{is_false, is_zero};
use super::{Clamped, Error, JobState, Members, Service, Standing};
use crate::jobs::{Caller, Filter, Job, Member, Phase, Summary};

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
    /// The members of this fleet.
    #[serde(default)]
    #[schemars(with = "String")]
    pub fleet: Option<String>,
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
    /// How the members of a fleet stand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub members: Option<Members>,
    /// The last lines it has printed, where they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
}

const SHOWN_OF_COMMAND: usize = 200;

impl Service {
    /// Lists jobs, the newest first.
    pub async fn jobs(&self, request: JobsRequest) -> Result<JobsReply, Error> {
        let mut clamps = Clamps::default();
        let limit = clamps.size("limit", request.limit.unwrap_or(100), 1..=10_000)?;
        if let Some(id) = &request.fleet {
            let members = self.members_of(&self.job(id).await?)?;
            let total = members.len();
            return Ok(JobsReply {
                jobs: members.into_iter().take(limit).collect(),
                total,
                clamped: clamps.0,
            });
        }
        let filter = Filter {
            label: request.label,
            state: request.state.map(JobState::as_str),
            // Who asks for a host means what runs there, whichever way.
            members: request.host.is_some(),
            host: request.host,
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
    /// The members of a fleet, those that have not started, too.
    fn members_of(&self, job: &Job) -> Result<Vec<JobEntry>, Error> {
        let Some(fleet) = job.fleet() else {
            let message = format!("{} is no fleet", job.id());
            return Err(Error::invalid(message, "name a job that was started with hosts"));
        };
        let members = fleet.members();
        Ok(members.iter().map(|member| JobEntry::of_member(member, job)).collect())
    }

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

    /// A member of a fleet, as the fleet knows it.
    fn of_member(member: &Member, fleet: &Job) -> Self {
        let phase = match &member.outcome {
            Some(outcome) => Phase::Ended(outcome.clone()),
            None if member.job.is_some() => Phase::Running,
            None => Phase::Starting,
        };
        Self {
            job_id: format!("{}/{}", fleet.id(), member.name),
            caller: None,
            host: member.name.clone(),
            command: shortened(fleet.command(), SHOWN_OF_COMMAND),
            label: None,
            standing: Standing::of_phase(&phase),
            owner: None,
            durable: fleet.is_durable(),
            has_leftovers: false,
            started_at: member.started_at,
            first_output_at: None,
            last_output_at: None,
            ended_at: (member.ended_at > 0).then_some(member.ended_at),
            total_lines: member.lines,
            total_bytes: member.bytes,
            dropped_lines: 0,
            silent_ms: 0,
            members: None,
            last_lines: member.last.clone(),
        }
    }

    /// A job in a list, as `reader` sees it.
    fn of_summary(summary: Summary, reader: &Caller) -> Self {
        let Summary { id, caller, host, command, label, durable, status, owner, has_leftovers, members } =
            summary;
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
            members: members.map(Members::from),
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
