//! The verb jobs.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::end_reason::EndReason;
use super::hints::FirstError;
use super::job_kind::{JobCounts, JobKind};
use super::processes::{DetailArg, ProcessList};
use super::results_entry::ResultsEntry;
use super::tree_entry::TreeEntry;
use crate::clamp::Clamps;
use crate::error::{Code, Error};
use crate::leave_out::{is_false, is_zero};
use crate::{Clamped, JobState, Members, Service, Standing};
use sshjobs_core::jobs::{
    Caller, Filter, Freshness, Job, Member, Phase, Selection, Summary, UsageSample, Verb, WaitsFor,
    timestamp_of,
};

/// List jobs, newest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct JobsRequest {
    /// On this host.
    #[serde(default)]
    pub host: Option<String>,
    /// With this label.
    #[serde(default)]
    pub label: Option<String>,
    /// In this state.
    #[serde(default)]
    pub state: Option<JobState>,
    /// Members of this fleet.
    #[serde(default)]
    pub fleet: Option<String>,
    /// Only this job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    /// processes: why job_id is silent, or has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<DetailArg>,
    /// Default 20.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub limit: Option<i64>,
    /// Don't ask hosts for newer states.
    #[serde(default, skip_serializing_if = "is_false")]
    pub cached: bool,
    /// List jobs that wait for input first, then those that run, then those in queues.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(skip)]
    pub running_first: bool,
    /// With this text in the id, host, label, caller or command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub text: Option<String>,
    /// Only jobs of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub only: Option<JobKind>,
    /// Also count the jobs of each kind, before `only` selects one.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(skip)]
    pub counts: bool,
    /// Examine which jobs wait for input, also if `cached`, and follow those that no process follows.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(skip)]
    pub examine_input: bool,
}

/// The jobs.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct JobsReply {
    /// The jobs, newest first.
    pub jobs: Vec<JobEntry>,
    /// Number of jobs that match the filter.
    pub total: usize,
    /// Number of jobs in each state, if requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub counts: Option<JobCounts>,
    /// Arguments that were out of range, and the values used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

/// State of one job. Times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct JobEntry {
    /// The job's id.
    pub job_id: String,
    /// Owner of the job, if it is another caller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub caller: Option<String>,
    /// The host it runs on.
    pub host: String,
    /// The command, up to 200 characters.
    pub command: String,
    /// Its label, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The user as whom it runs, if not the account.
    #[serde(default, rename = "become", skip_serializing_if = "Option::is_none")]
    pub becomes: Option<String>,
    /// State, exit_status and exit_signal.
    #[serde(flatten)]
    pub standing: Standing,
    /// The process that records it, if it is not this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub owner: Option<String>,
    /// Its place in its queue, while it waits there: 1 is the next one to start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub queue_position: Option<usize>,
    /// Whether the job or its queue is held.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(skip)]
    pub held: bool,
    /// Whether it outlives its server and the connection.
    #[serde(default, skip_serializing_if = "is_false")]
    pub durable: bool,
    /// Whether it runs on a terminal.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(skip)]
    pub pty: bool,
    /// How often it was started, if it can be restarted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub attempts: Option<u32>,
    /// GPUs that it was given.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub gpus: Vec<String>,
    /// Its use of resources over time, if it was given GPUs; for one job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub usage: Vec<UsageSample>,
    /// The working tree that it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub tree: Option<TreeEntry>,
    /// The files that it gives back.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(skip)]
    pub fetch: Vec<String>,
    /// Those that were copied back.
    #[serde(flatten)]
    #[schemars(skip)]
    pub results: ResultsEntry,
    /// The words from which its host was chosen.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub chosen_from: Option<String>,
    /// It was lost, and some of its processes may still run.
    #[serde(default, skip_serializing_if = "is_false")]
    #[schemars(skip)]
    pub has_leftovers: bool,
    /// Time of its start.
    pub started_at: u64,
    /// Time of its first byte of output.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_output_at: Option<u64>,
    /// Time of its newest byte.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_output_at: Option<u64>,
    /// Time of its end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<u64>,
    /// Number of lines printed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub total_lines: u64,
    /// Number of bytes printed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub total_bytes: u64,
    /// Number of evicted lines.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(skip)]
    pub dropped_lines: u64,
    /// Milliseconds since its last output.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub silent_ms: u64,
    /// Whether it seems to wait for input; examined for the newest 32 running jobs.
    #[serde(default, skip_serializing_if = "is_false")]
    pub awaiting_input: bool,
    /// Members of a fleet, by state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub members: Option<Members>,
    /// Time of the last known state, if it is not current.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub last_seen_at: Option<u64>,
    /// The first line of a failed job that looks like an error; in ssh_wait, and with detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_error: Option<FirstError>,
    /// Its last lines, if requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
    /// Its processes, if requested and while it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub processes: Option<ProcessList>,
    /// Why it ended, if its processes were requested and it has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub why: Option<EndReason>,
}

const SHOWN_OF_COMMAND: usize = 200;
/// Maximum jobs of a list.
const MOST_LISTED: i64 = 10_000;
/// Default of `limit`: what a model reads at a glance.
const LISTED: i64 = 20;
/// Maximum jobs of a list that are examined for whether they wait for input.
const MOST_ASKED: usize = 32;
/// Time limit for examining them.
const ASK_TIME: Duration = Duration::from_secs(1);

impl Service {
    /// Lists jobs, newest first.
    pub async fn jobs(&self, request: JobsRequest) -> Result<JobsReply, Error> {
        if let Some(id) = &request.job_id {
            return self.one_job(id, &request).await;
        }
        if request.detail.is_some() {
            // Not `invalid_argument`: the request is as the schema describes it.
            return Err(Error::new(
                Code::UnknownJob,
                "detail needs job_id",
                "name the job; without detail, all jobs are listed",
            ));
        }
        let mut clamps = Clamps::default();
        let limit = clamps.size("limit", request.limit.unwrap_or(LISTED), 1..=MOST_LISTED)?;
        let mut listed = match &request.fleet {
            Some(id) => self.list_members(id).await?,
            None => self.list_jobs(&request, limit).await?,
        };
        if request.needs_all_jobs() {
            listed.jobs.retain(|job| request.mentioned_by(job));
            let kinds: Vec<JobKind> = listed.jobs.iter().map(JobEntry::kind).collect();
            listed.counts = request.counts.then(|| JobCounts::of(&kinds));
            listed.jobs.retain(|job| request.is_for_kind_of(job));
            listed.total = listed.jobs.len();
        }
        listed.jobs.truncate(limit);
        Ok(JobsReply {
            clamped: clamps.0,
            ..listed
        })
    }

    /// All members of a fleet. They come from the fleet itself, which also has those without a job.
    async fn list_members(&self, id: &str) -> Result<JobsReply, Error> {
        let fleet = self.job(Verb::Jobs, id).await?;
        let members = members_of(&fleet).await?;
        Ok(JobsReply::of(members, Clamps::default()))
    }

    /// The newest jobs, or all if the request selects or counts by what only their entries say.
    async fn list_jobs(&self, request: &JobsRequest, limit: usize) -> Result<JobsReply, Error> {
        let limit = if request.needs_all_jobs() {
            usize::try_from(MOST_LISTED).unwrap_or(usize::MAX)
        } else {
            limit
        };
        let filter = Filter {
            label: request.label.clone(),
            state: request.state.map(JobState::as_str),
            // A filter by host also finds members of fleets there.
            members: request.host.is_some(),
            host: request.host.clone(),
            limit,
            ..Filter::default()
        };
        let look = if request.cached {
            Freshness::Recorded
        } else {
            Freshness::AskHosts
        };
        let (mut found, total) = self.jobs.list(filter.clone(), look).await?;
        if request.running_first && filter.state.is_none() && found.len() == limit {
            self.add_older_running(&mut found, &filter).await?;
        }
        let own = self.jobs.caller();
        let mut jobs: Vec<JobEntry> =
            found.into_iter().map(|summary| JobEntry::of_summary(summary, own)).collect();
        let is_for_waiting = request.only == Some(JobKind::Waiting);
        if !request.cached || request.examine_input || is_for_waiting {
            let follows = request.examine_input || is_for_waiting;
            self.note_awaiting_input(&mut jobs, follows).await;
        }
        self.note_reasons(&mut jobs).await;
        self.note_results(&mut jobs).await;
        if request.running_first {
            jobs.sort_by_key(|job| (job.attention(), job.queue_position));
        }
        Ok(JobsReply {
            jobs,
            total,
            counts: None,
            clamped: Vec::new(),
        })
    }

    /// Adds the jobs that have not ended and are older than those found.
    async fn add_older_running(
        &self,
        found: &mut Vec<Summary>,
        filter: &Filter,
    ) -> Result<(), Error> {
        for state in [JobState::Running, JobState::Starting, JobState::Queued] {
            let of_state = Filter {
                state: Some(state.as_str()),
                ..filter.clone()
            };
            let (running, _) = self.jobs.list(of_state, Freshness::Recorded).await?;
            let older: Vec<Summary> = running
                .into_iter()
                .filter(|job| found.iter().all(|newer| newer.id != job.id))
                .collect();
            found.extend(older);
        }
        Ok(())
    }

    /// Notes which of the newest running jobs seem to wait for input. With `follows`, this process starts to follow
    /// jobs that no process follows; otherwise they are left out.
    pub(in crate::verbs) async fn note_awaiting_input(
        &self,
        entries: &mut [JobEntry],
        follows: bool,
    ) {
        let candidates = entries.iter_mut().filter(|entry| {
            let is_running = entry.standing.state == JobState::Running && entry.members.is_none();
            let is_followed = entry.last_seen_at.is_none();
            is_running && ((is_followed && entry.total_bytes > 0) || (follows && !is_followed))
        });
        let questions = candidates.take(MOST_ASKED).map(async |entry| {
            if let Ok(job) = self.job(Verb::Jobs, &entry.job_id).await {
                entry.awaiting_input = job.awaits_input(Selection::Both).await;
            }
        });
        let asking = futures_util::future::join_all(questions);
        // A host that does not answer must not hold up the list.
        drop(tokio::time::timeout(ASK_TIME, asking).await);
    }

    /// Notes what the newest queued jobs wait for.
    pub(in crate::verbs) async fn note_reasons(&self, entries: &mut [JobEntry]) {
        // A job that no process has is left out, because looking at it would launch it here.
        let queued = entries.iter_mut().filter(|entry| {
            entry.standing.state == JobState::Queued && entry.last_seen_at.is_none()
        });
        for entry in queued.take(MOST_ASKED) {
            if let Ok(job) = self.job(Verb::Jobs, &entry.job_id).await {
                entry.note_turn(job.waits_for().await);
            }
        }
    }

    /// The state of a job in a few words. `None` if there is no such job.
    pub async fn standing(&self, job_id: &str) -> Option<String> {
        let status = self.job(Verb::Jobs, job_id).await.ok()?.status();
        let silent = status.silent.as_secs();
        Some(format!(
            "{}, {} lines, silent for {silent} s",
            Standing::of(&status),
            status.total_lines
        ))
    }
}

impl JobEntry {
    /// Notes the condition for the start of a queued job. `None` if it may start.
    pub(in crate::verbs) fn note_turn(&mut self, waits_for: Option<WaitsFor>) {
        self.standing.reason = waits_for.as_ref().map(ToString::to_string);
        self.queue_position = waits_for.as_ref().and_then(WaitsFor::position);
        self.held = matches!(
            waits_for,
            Some(WaitsFor::Release | WaitsFor::ReleaseOfQueue(_))
        );
    }

    /// The current state of a job.
    pub fn of(job: &Job) -> Self {
        Self::of_summary(job.summary(), job.seen_by())
    }

    /// A member of a fleet, from the fleet's own state.
    /// `stopped_by` is the reason for which members were not started.
    fn of_member(member: &Member, fleet: &Job, stopped_by: Option<&str>) -> Self {
        let result = member.result();
        let phase = match result {
            Some(result) => Phase::Ended(result.outcome.clone()),
            None if member.job.is_some() => Phase::Running,
            None => Phase::Starting,
        };
        let mut standing = Standing::of_phase(&phase);
        if phase == Phase::Starting {
            standing.reason = stopped_by.map(str::to_owned);
        }
        Self {
            job_id: format!("{}/{}", fleet.id(), member.name),
            caller: None,
            host: member.name.clone(),
            command: shortened(fleet.command(), SHOWN_OF_COMMAND),
            label: None,
            becomes: None,
            standing,
            owner: None,
            queue_position: None,
            held: false,
            durable: fleet.is_durable(),
            pty: false,
            attempts: None,
            gpus: Vec::new(),
            usage: Vec::new(),
            tree: None,
            fetch: Vec::new(),
            results: ResultsEntry::default(),
            chosen_from: None,
            has_leftovers: false,
            started_at: member.started_at().map_or(0, timestamp_of),
            first_output_at: None,
            last_output_at: None,
            ended_at: result.map(|result| timestamp_of(result.ended_at)),
            total_lines: result.map_or(0, |result| result.lines),
            total_bytes: result.map_or(0, |result| result.bytes),
            dropped_lines: 0,
            silent_ms: 0,
            awaiting_input: false,
            members: None,
            last_seen_at: None,
            first_error: None,
            last_lines: result.map(|result| result.last.clone()).unwrap_or_default(),
            processes: None,
            why: None,
        }
    }

    /// A job of a list, as seen by `reader`.
    pub(in crate::verbs) fn of_summary(summary: Summary, reader: &Caller) -> Self {
        let Summary {
            id,
            caller,
            facts,
            status,
            owner,
            has_leftovers,
            members,
            last_seen_at,
        } = summary;
        Self {
            job_id: id.as_str().to_owned(),
            caller: (caller != *reader).then(|| caller.as_str().to_owned()),
            host: facts.host,
            command: shortened(&facts.command, SHOWN_OF_COMMAND),
            label: facts.label,
            becomes: facts.becomes.map(|becomes| becomes.user().to_owned()),
            standing: Standing::of(&status),
            owner,
            queue_position: None,
            held: false,
            durable: facts.durable,
            pty: facts.terminal.is_some(),
            attempts: status.evidence.attempts,
            gpus: status.evidence.gpus.clone(),
            usage: Vec::new(),
            tree: facts.tree.map(TreeEntry::from),
            fetch: facts.fetch.iter().map(ToString::to_string).collect(),
            results: ResultsEntry::default(),
            chosen_from: facts.chosen_from,
            has_leftovers,
            started_at: timestamp_of(status.started_at),
            first_output_at: status.first_output_at.map(timestamp_of),
            last_output_at: status.last_output_at.map(timestamp_of),
            ended_at: status.ended_at.map(timestamp_of),
            total_lines: status.total_lines,
            total_bytes: status.total_bytes,
            dropped_lines: status.dropped_lines,
            silent_ms: u64::try_from(status.silent.as_millis()).unwrap_or(u64::MAX),
            awaiting_input: false,
            members: members.map(Members::from),
            last_seen_at: last_seen_at.map(timestamp_of),
            first_error: None,
            last_lines: Vec::new(),
            processes: None,
            why: None,
        }
    }
}

impl JobsReply {
    pub(in crate::verbs) fn of(jobs: Vec<JobEntry>, clamps: Clamps) -> Self {
        Self {
            total: jobs.len(),
            jobs,
            counts: None,
            clamped: clamps.0,
        }
    }
}

/// The first `most` characters of a command, so that a list of jobs does not grow with long
/// scripts.
pub(crate) fn shortened(command: &str, most: usize) -> String {
    match command.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", command.split_at(end).0),
        None => command.to_owned(),
    }
}

/// The members of a fleet, including those that have not been started. With their last lines, if the
/// caller may read them.
async fn members_of(job: &Job) -> Result<Vec<JobEntry>, Error> {
    if !job.is_fleet() {
        let message = format!("{} is not a fleet", job.id());
        return Err(Error::invalid(
            message,
            "name a job that was started with hosts",
        ));
    }
    let members = match job.readable_if_allowed().await {
        Some(readable) => readable.members(),
        None => job.members(),
    };
    let stopped_by = job.why_stopped();
    let entry_of = |member| JobEntry::of_member(member, job, stopped_by.as_deref());
    Ok(members.iter().map(entry_of).collect())
}
