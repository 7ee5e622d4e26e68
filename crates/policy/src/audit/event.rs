//! Entries of the log.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// An entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// A process begins to write.
    Opened {
        /// Description of the process.
        process: String,
        /// Name of its machine.
        machine: String,
        /// The key with which its checkpoints are signed, in base64.
        public_key: String,
    },
    /// A policy is in force.
    Policy {
        /// Its file.
        file: String,
        /// SHA-256 of the file, in hexadecimal.
        sha256: String,
    },
    /// A call was allowed or denied.
    Decision(Box<Decided>),
    /// A read was repeated within a minute.
    Repeated(Box<Repeated>),
    /// An approver agreed to a call, or refused it.
    Voted(Voted),
    /// A job was started.
    Started {
        /// Sequence number of the decision that allowed it.
        decision: u64,
        /// Its id.
        job: String,
    },
    /// A job has ended.
    Ended(EndedJob),
    /// Everything before this line was signed.
    Checkpoint {
        /// Ed25519 signature in base64.
        signature: String,
    },
    /// The last writer was stopped in the middle of a line, which was cut off. A call that starts or
    /// changes something had not begun.
    Repaired {
        /// Number of bytes that were cut off.
        bytes: u64,
    },
    /// A start that was allowed has failed.
    Failed {
        /// Sequence number of the decision that allowed it.
        decision: u64,
        /// Why it has failed.
        why: String,
    },
    /// From here on calls are recorded elsewhere, or not at all: the policy has changed.
    Closed {
        /// The new log. `None` if calls are not recorded any more.
        continued_in: Option<String>,
    },
    /// The oldest files are deleted after this line.
    Pruned {
        /// Number of the last line in them.
        through: u64,
        /// The hash of that line.
        hash: String,
        /// Number of the files.
        files: u64,
        /// A signature of this statement: a later checkpoint would also cover a statement by another writer.
        signature: String,
    },
    /// Lines could not be written, and their calls were performed all the same: reads, ends of jobs, and every call with
    /// `on_failure = "warn"`.
    Missed {
        /// Number of these lines.
        lines: u64,
    },
}

/// A decision on a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Decided {
    /// Who called.
    pub caller: String,
    /// The address from which it was called. None for a caller on the machine of the process.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The caller's role.
    pub role: String,
    /// The verb.
    pub verb: String,
    /// Whether the call was allowed.
    pub allowed: bool,
    /// The rules that allowed or denied it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<String>,
    /// Why it was denied.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
    /// The host, as named by the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The names and addresses of its machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<String>,
    /// The accounts that the call uses there: the one that logs in, and the one that it becomes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    /// The jump hosts on the way to it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub through: Vec<String>,
    /// The job that the call is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The command of a start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<String>,
    /// The template that the command is made from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub template: Option<String>,
    /// The values of its parameters.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    /// Working directory of a start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cwd: Option<String>,
    /// SHA-256 of the script that is sent with a start, in hexadecimal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub script_sha256: Option<String>,
    /// Names of the variables that a start sets. Their values may be secrets.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<String>,
    /// Names of the configuration's secrets that a start or a write uses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub secrets: Vec<String>,
    /// The file or directory that is read or written. None if a call only looks whether something exists.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Where a forward leads to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// The approval that the call used or, if it is denied, waits for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval: Option<String>,
}

/// A read that was repeated. Its first call has a decision before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Repeated {
    /// Who called.
    pub caller: String,
    /// The address from which it was called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The verb.
    pub verb: String,
    /// The host, as named by the caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The names and addresses of its machine.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub machine: Vec<String>,
    /// The job that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<String>,
    /// The file that was read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Number of calls after the first one.
    pub calls: u64,
    /// Time of the first one, as in RFC 3339, in UTC.
    pub since: String,
}

/// A vote on an approval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Voted {
    /// The approval.
    pub approval: String,
    /// SHA-256 of the call, in hexadecimal.
    pub sha256: String,
    /// Who asked for it.
    pub asker: String,
    /// The approver.
    pub by: String,
    /// The address from which the approver called.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Whether the approver agrees.
    pub agrees: bool,
    /// Why, in the approver's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// The end of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndedJob {
    /// Its id.
    pub job: String,
    /// Its caller.
    pub caller: String,
    /// Its host.
    pub host: String,
    /// How it ended, in words.
    pub outcome: String,
    /// Exit status of its command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<u32>,
    /// Signal that ended its command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<String>,
    /// Number of bytes that it printed.
    pub bytes: u64,
    /// Number of lines that it printed.
    pub lines: u64,
    /// How long it ran, in milliseconds.
    pub duration_ms: u64,
}
