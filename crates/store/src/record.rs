//! Records of jobs, as stored in the database.

use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use sshjobs_job::{
    Caller, Draft, EndEvidence, Job, JobFacts, JobId, JobIdentity, JobSpec, MachineId, Member,
    Nonce, Outcome, Past, Phase, SecretFingerprint, SecretUses, SpecError, Status, Stdin, wall_now,
};
use sshjobs_output::{LineNo, Resize, TerminalModes, Timestamp, time_of, timestamp_of};

/// The record of a job: everything that is kept except its output. It contains no secrets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// The job's id.
    pub id: JobId,
    /// Identifies its processes on the host.
    pub mark: Nonce,
    /// Owner of the job.
    pub caller: Caller,
    /// Its specification, without what is secret.
    #[serde(flatten)]
    pub facts: JobFacts,
    /// Names of its variables.
    pub env: Vec<String>,
    /// Whether its stdin was left open.
    pub has_stdin: bool,
    /// Whether it had variables or text for stdin, whose values are not kept.
    // Records of earlier versions lack the fields that have a default.
    #[serde(default)]
    pub had_secrets: bool,
    /// Secrets of the configuration that it uses, by variable.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub secret_env: BTreeMap<String, String>,
    /// The secret of the configuration that is its stdin.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_stdin: Option<String>,
    /// Fingerprints of the secrets that its output must not show.
    #[serde(default)]
    pub hidden_secrets: Vec<SecretFingerprint>,
    /// Whether the job may start: its order may have been sent to its host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_admitted: bool,
    /// Its idempotency key.
    pub key: Option<String>,
    /// A keyed hash of its specification.
    pub fingerprint: String,
    /// The process that records it, or the last one that did.
    pub owner: String,
    /// The machine that it runs on and its boot, if reported.
    pub machine: Option<MachineId>,
    /// Id of its process group there, once reported.
    pub pgid: Option<u32>,
    /// Time of the request.
    pub started_at: Timestamp,
    /// Arrival of its first byte.
    pub first_output_at: Option<Timestamp>,
    /// Arrival of its newest byte.
    pub last_output_at: Option<Timestamp>,
    /// Time of its end.
    pub ended_at: Option<Timestamp>,
    /// Its outcome.
    pub outcome: Option<Outcome>,
    /// Whether the host has confirmed that it runs the command.
    pub is_running: bool,
    /// The modes of its terminal.
    #[serde(default)]
    pub modes: TerminalModes,
    /// Changes of its terminal's size.
    #[serde(default)]
    pub resizes: Vec<Resize>,
    /// Number of lines it has printed.
    pub total_lines: u64,
    /// Number of bytes it has printed.
    pub total_bytes: u64,
    /// Number of evicted lines.
    pub dropped_lines: u64,
    /// Bytes that its stored output uses.
    pub stored_bytes: u64,
    /// Facts about its end.
    #[serde(default, skip_serializing_if = "EndEvidence::is_empty")]
    pub evidence: EndEvidence,
    /// Its members' outcomes, for a fleet that has ended.
    #[serde(default)]
    pub members: Vec<Member>,
    /// Time of its last known state, from its owner or its host.
    #[serde(default)]
    pub seen_at: Timestamp,
    /// Some of its processes may still run on its host, and must be ended when the host is next
    /// reached.
    pub has_leftovers: bool,
}

impl Record {
    /// Name of its state on the wire.
    pub fn state(&self) -> &'static str {
        Phase::name(&self.phase())
    }

    /// The record of a job that was just requested.
    pub fn new(job: &Job, key: Option<&str>, fingerprint: String) -> Self {
        let Draft {
            facts,
            env,
            secrets,
            stdin,
            pace: _,
        } = &*job.spec;
        let mut record = Self {
            mark: job.mark.clone(),
            env: env.keys().cloned().collect(),
            has_stdin: matches!(stdin, Stdin::Open),
            secret_env: secrets.env.clone(),
            secret_stdin: secrets.stdin.clone(),
            hidden_secrets: secrets.fingerprints.clone(),
            had_secrets: !env.is_empty() || matches!(stdin, Stdin::Text(_)),
            is_admitted: false,
            key: key.map(str::to_owned),
            fingerprint,
            ..Self::of_output(job.id.clone(), job.caller.clone(), facts.clone())
        };
        record.update(&job.status(), job.read_log(sshjobs_job::Log::pgid));
        record
    }

    /// The record of a job of which only the output is known.
    pub(super) fn of_output(id: JobId, caller: Caller, facts: JobFacts) -> Self {
        Self {
            id,
            mark: Nonce::new(),
            caller,
            facts,
            env: Vec::new(),
            has_stdin: false,
            secret_env: BTreeMap::new(),
            secret_stdin: None,
            hidden_secrets: Vec::new(),
            had_secrets: false,
            is_admitted: true,
            key: None,
            fingerprint: String::new(),
            // `Storing` sets it before it stores the record.
            owner: String::new(),
            machine: None,
            pgid: None,
            started_at: wall_now(),
            first_output_at: None,
            last_output_at: None,
            ended_at: None,
            outcome: None,
            is_running: false,
            modes: TerminalModes::default(),
            resizes: Vec::new(),
            total_lines: 0,
            total_bytes: 0,
            dropped_lines: 0,
            stored_bytes: 0,
            evidence: EndEvidence::default(),
            members: Vec::new(),
            seen_at: wall_now(),
            has_leftovers: false,
        }
    }

    /// Copies a job's status.
    pub fn update(&mut self, status: &Status, pgid: Option<u32>) {
        self.is_running = status.phase == Phase::Running;
        self.outcome = match &status.phase {
            Phase::Ended(outcome) => Some(outcome.clone()),
            Phase::Queued | Phase::Starting | Phase::Running => None,
        };
        self.pgid = pgid;
        self.started_at = timestamp_of(status.started_at);
        self.first_output_at = status.first_output_at.map(timestamp_of);
        self.last_output_at = status.last_output_at.map(timestamp_of);
        self.ended_at = status.ended_at.map(timestamp_of);
        self.evidence = status.evidence.clone();
        self.modes = status.terminal_modes;
        self.total_lines = status.total_lines;
        self.total_bytes = status.total_bytes;
        self.dropped_lines = status.dropped_lines;
    }

    /// The job's status when the record was written.
    pub fn status(&self) -> Status {
        let silent_since = self.ended_at.or(self.last_output_at).unwrap_or(self.started_at);
        Status {
            phase: self.phase(),
            started_at: time_of(self.started_at),
            first_output_at: self.first_output_at.map(time_of),
            last_output_at: self.last_output_at.map(time_of),
            ended_at: self.ended_at.map(time_of),
            total_lines: self.total_lines,
            total_bytes: self.total_bytes,
            dropped_lines: self.dropped_lines,
            first_available: LineNo::new(self.dropped_lines + 1),
            silent: Duration::from_millis(wall_now().saturating_sub(silent_since)),
            unstored: None,
            is_stale: false,
            disconnected: None,
            terminal_modes: self.modes,
            evidence: self.evidence.clone(),
        }
    }

    /// Whether the job can't be started from its record, because secrets that it needs are not kept.
    pub fn lacks_secrets(&self) -> bool {
        self.had_secrets || !self.hidden_secrets.is_empty()
    }

    /// Whether a process that adopts the job launches it. A job that was admitted may run already: launching
    /// it again is safe, because its host runs it once, and impossible if it needs secrets. Then it is
    /// followed.
    pub fn is_launched_again(&self) -> bool {
        let may_run = self.is_admitted && self.lacks_secrets();
        self.durable && self.may_wait() && !self.is_running && self.outcome.is_none() && !may_run
    }

    /// The values that distinguish the job from all others.
    pub fn identity(&self) -> JobIdentity {
        JobIdentity {
            id: self.id.clone(),
            mark: self.mark.clone(),
            caller: self.caller.clone(),
        }
    }

    /// State of the job.
    pub fn phase(&self) -> Phase {
        match &self.outcome {
            Some(outcome) => Phase::Ended(outcome.clone()),
            None if self.is_running => Phase::Running,
            None if self.may_wait() && !self.is_admitted => Phase::Queued,
            None => Phase::Starting,
        }
    }

    /// The state with which a log of this job is resumed.
    pub fn past(&self) -> Past {
        Past {
            phase: self.phase(),
            started_at: self.started_at,
            first_output_at: self.first_output_at,
            last_output_at: self.last_output_at,
            ended_at: self.ended_at,
            pgid: self.pgid,
            evidence: self.evidence.clone(),
            modes: self.modes,
        }
    }

    /// The specification as far as it is kept: without the values of variables and the text for
    /// stdin.
    pub fn spec(&self) -> Result<JobSpec, SpecError> {
        let env: BTreeMap<_, _> =
            self.env.iter().map(|name| (name.clone(), SecretString::default())).collect();
        let secrets = SecretUses {
            env: self.secret_env.clone(),
            stdin: self.secret_stdin.clone(),
            fingerprints: self.hidden_secrets.clone(),
            ..SecretUses::default()
        };
        let draft = Draft {
            env,
            secrets,
            stdin: if self.has_stdin {
                Stdin::Open
            } else {
                // Also for a text, which is not kept.
                Stdin::Closed
            },
            ..Draft::from(self.facts.clone())
        };
        draft.try_into()
    }
}

impl Deref for Record {
    type Target = JobFacts;

    fn deref(&self) -> &JobFacts {
        &self.facts
    }
}

impl DerefMut for Record {
    fn deref_mut(&mut self) -> &mut JobFacts {
        &mut self.facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sshjobs_job::Turn;
    use sshjobs_output::RingLimits;

    fn queued(with_secrets: bool) -> Record {
        let mut draft = Draft::new("web1", "make");
        draft.durable = true;
        draft.turn.queue = Some("deploy".to_owned());
        if with_secrets {
            draft.env.insert("TOKEN".to_owned(), SecretString::from("hunter2"));
        }
        let job = Job::new(
            Caller::local(),
            draft.try_into().unwrap(),
            RingLimits::default(),
        );
        Record::new(&job, None, String::new())
    }

    /// A record as an earlier version stored it, whose facts stood between the other fields.
    const EARLIER: &str = r#"{"id": "web1-7f3k9q2m", "mark": "00112233445566778899aabbccddeeff",
        "caller": "local", "host": "web1", "command": "make", "label": "nightly", "cwd": null, "env": ["TOKEN"],
        "has_stdin": false, "timeout": {"secs": 60, "nanos": 0}, "terminal": null, "durable": true,
        "turn": {"queue": "deploy"}, "key": null, "fingerprint": "", "owner": "", "machine": null,
        "pgid": null, "started_at": 1, "first_output_at": null, "last_output_at": null, "ended_at": null,
        "outcome": null, "is_running": true, "total_lines": 3, "total_bytes": 30, "dropped_lines": 0,
        "stored_bytes": 30, "has_leftovers": false}"#;

    #[test]
    fn a_record_of_an_earlier_version_is_read() {
        let record: Record = serde_json::from_str(EARLIER).unwrap();
        let facts = JobFacts {
            host: "web1".to_owned(),
            command: "make".to_owned(),
            label: Some("nightly".to_owned()),
            timeout: Some(Duration::from_secs(60)),
            turn: Turn {
                queue: Some("deploy".to_owned()),
                ..Turn::default()
            },
            durable: true,
            ..JobFacts::default()
        };
        assert_eq!(record.facts, facts);
        assert_eq!(record.total_lines, 3);
        let stored = serde_json::to_value(&record).unwrap();
        assert_eq!(stored["host"], "web1");
        assert_eq!(serde_json::from_value::<Record>(stored).unwrap(), record);
    }

    #[test]
    fn a_job_that_waits_is_launched_by_the_process_that_adopts_it() {
        let record = queued(false);
        assert_eq!(record.phase(), Phase::Queued);
        assert!(record.is_launched_again());
    }

    #[test]
    fn an_admitted_job_that_needs_secrets_is_followed_and_not_launched_again() {
        for with_secrets in [true, false] {
            let record = Record {
                is_admitted: true,
                ..queued(with_secrets)
            };
            assert_eq!(record.phase(), Phase::Starting);
            assert_eq!(record.is_launched_again(), !with_secrets);
        }
    }

    #[test]
    fn a_job_that_runs_or_has_ended_is_never_launched_again() {
        let running = Record {
            is_running: true,
            ..queued(false)
        };
        let ended = Record {
            outcome: Some(Outcome::Closed),
            ..queued(false)
        };
        assert!(!running.is_launched_again() && !ended.is_launched_again());
    }
}
