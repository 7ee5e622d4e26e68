use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use std::collections::BTreeMap;
use std::time::Duration;

use crate::job::{
    Caller, Draft, FleetPlan, Job, JobId, JobSpec, MachineId, Member, Nonce, Outcome, Past, Phase, SpecError,
    Status, StdinPlan, Terminal,
};
use crate::output::Timestamp;

/// What is kept of a job besides its output. There are no secrets in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub id: JobId,
    /// What marks its processes on the host.
    pub mark: Nonce,
    /// Whose it is.
    pub caller: Caller,
    /// The host's name, as the caller calls it.
    pub host: String,
    /// The command line.
    pub command: String,
    /// The caller's word for it.
    pub label: Option<String>,
    /// Where it runs.
    pub cwd: Option<String>,
    /// The names of the variables that were set for it.
    pub env: Vec<String>,
    /// Whether its stdin was left open.
    pub has_stdin: bool,
    /// Whether it was given text for stdin or variables, of which the values are not kept.
    #[serde(default)]
    pub had_secrets: bool,
    /// Its time limit.
    pub timeout: Option<Duration>,
    /// Its terminal.
    pub terminal: Option<Terminal>,
    /// Whether it goes on without us.
    pub durable: bool,
    /// Its idempotency key.
    pub key: Option<String>,
    /// A keyed hash of all that was asked for.
    pub fingerprint: String,
    /// The process that records it, or did so last.
    pub owner: String,
    /// The machine that it runs on, and which start of it, if that was told.
    pub machine: Option<MachineId>,
    /// The id of its process group there, once told.
    pub pgid: Option<u32>,
    /// When it was asked for.
    pub started_at: Timestamp,
    /// When its first byte came.
    pub first_output_at: Option<Timestamp>,
    /// When its newest byte came.
    pub last_output_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// What became of it.
    pub outcome: Option<Outcome>,
    /// Whether the host has said that it runs the command.
    pub is_running: bool,
    /// Lines it has printed.
    pub total_lines: u64,
    /// Bytes it has printed.
    pub total_bytes: u64,
    /// Lines that are no longer kept.
    pub dropped_lines: u64,
    /// Bytes that its output takes.
    pub stored_bytes: u64,
    /// What was to run where, when it is a fleet.
    #[serde(default)]
    pub fleet: Option<FleetPlan>,
    /// What has become of its members, when it has ended.
    #[serde(default)]
    pub members: Vec<Member>,
    /// The fleet that it is a member of.
    #[serde(default)]
    pub member_of: Option<JobId>,
    /// Something of it may still run on its host, and is to be ended when that is next reached.
    pub has_leftovers: bool,
}

impl Record {
    /// The record of a job that has just been asked for.
    pub fn new(job: &Job, key: Option<&str>, fingerprint: String) -> Self {
        let Draft {
            host, command, cwd, env, label, stdin, timeout, terminal, durable, fleet, member_of, ..
        } = &*job.spec;
        let mut record = Self {
            id: job.id.clone(),
            mark: job.mark.clone(),
            caller: job.caller.clone(),
            host: host.clone(),
            command: command.clone(),
            label: label.clone(),
            cwd: cwd.clone(),
            env: env.keys().cloned().collect(),
            has_stdin: matches!(stdin, StdinPlan::Open),
            had_secrets: !env.is_empty() || matches!(stdin, StdinPlan::Text(_)),
            timeout: *timeout,
            terminal: terminal.clone(),
            durable: *durable,
            key: key.map(str::to_owned),
            fingerprint,
            owner: String::new(),
            machine: None,
            pgid: None,
            started_at: 0,
            first_output_at: None,
            last_output_at: None,
            ended_at: None,
            outcome: None,
            is_running: false,
            total_lines: 0,
            total_bytes: 0,
            dropped_lines: 0,
            stored_bytes: 0,
            fleet: fleet.clone(),
            members: Vec::new(),
            member_of: member_of.clone(),
            has_leftovers: false,
        };
        record.update(&job.status(), job.read_log(crate::job::Log::pgid));
        record
    }

    /// Takes note of how the job stands.
    pub fn update(&mut self, status: &Status, pgid: Option<u32>) {
        self.is_running = status.phase == Phase::Running;
        self.outcome = match &status.phase {
            Phase::Ended(outcome) => Some(outcome.clone()),
            Phase::Starting | Phase::Running => None,
        };
        self.pgid = pgid;
        self.started_at = status.started_at;
        self.first_output_at = status.first_output_at;
        self.last_output_at = status.last_output_at;
        self.ended_at = status.ended_at;
        self.total_lines = status.total_lines;
        self.total_bytes = status.total_bytes;
        self.dropped_lines = status.dropped_lines;
    }

    /// How far the job has come.
    pub fn phase(&self) -> Phase {
        match &self.outcome {
            Some(outcome) => Phase::Ended(outcome.clone()),
            None if self.is_running => Phase::Running,
            None => Phase::Starting,
        }
    }

    /// What a log that is resumed has to know.
    pub fn past(&self) -> Past {
        Past {
            phase: self.phase(),
            started_at: self.started_at,
            first_output_at: self.first_output_at,
            last_output_at: self.last_output_at,
            ended_at: self.ended_at,
            pgid: self.pgid,
        }
    }

    /// What was asked for, as far as it is kept: without the values of variables, and without the text for stdin.
    pub fn spec(&self) -> Result<JobSpec, SpecError> {
        let env: BTreeMap<_, _> =
            self.env.iter().map(|name| (name.clone(), SecretString::default())).collect();
        let draft = Draft {
            cwd: self.cwd.clone(),
            env,
            label: self.label.clone(),
            stdin: if self.has_stdin { StdinPlan::Open } else { StdinPlan::Closed },
            timeout: self.timeout,
            terminal: self.terminal.clone(),
            durable: self.durable,
            fleet: self.fleet.clone(),
            member_of: self.member_of.clone(),
            ..Draft::new(self.host.clone(), self.command.clone())
        };
        draft.try_into()
    }
}
