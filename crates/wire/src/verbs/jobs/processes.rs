//! The processes of a job, as a detail of the verb jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use sshjobs_core::jobs::{Process, Processes, Termios};

/// A detail of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum DetailArg {
    /// Its processes on the host.
    Processes,
}

/// The processes of a running job, observed for half a second.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessList {
    /// Why the job may be silent, in a sentence.
    pub summary: String,
    /// The processes, by id: at most 50.
    pub processes: Vec<ProcessEntry>,
    /// Number of all its processes.
    pub total: usize,
    /// Modes of its terminal, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub terminal: Option<TerminalEntry>,
}

/// A process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ProcessEntry {
    /// Its id on the host.
    pub pid: u32,
    /// Its parent's id.
    pub parent: u32,
    /// Id of its account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uid: Option<u32>,
    /// The program and its arguments, up to 400 bytes.
    pub command: String,
    /// `running`, `sleeping`, `blocked` (by a disk or another device), `stopped` or `ended`.
    pub state: String,
    /// The event that it waits for, in words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waits_for: Option<String>,
    /// Whether it reads the job's terminal.
    pub reads_terminal: bool,
    /// The kernel function in which it sleeps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wchan: Option<String>,
    /// Processor time so far.
    pub cpu_ms: u64,
    /// Processor time while it was observed, in percent of one core.
    pub cpu_percent: f64,
    /// Memory in use (resident).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The most memory that it has used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Number of threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Time since its start.
    pub elapsed_ms: u64,
    /// Number of open files, including sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u32>,
    /// Number of open sockets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sockets: Option<u32>,
    /// Bytes read so far, from anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes: Option<u64>,
    /// Bytes written so far, to anything.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes: Option<u64>,
    /// Bytes read in a second, while it was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_bytes_per_s: Option<u64>,
    /// Bytes written in a second, while it was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub written_bytes_per_s: Option<u64>,
}

/// Modes of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TerminalEntry {
    /// Whether programs get whole lines; otherwise single keys.
    pub lines: bool,
    /// Whether typed keys are shown.
    pub echo: bool,
}

impl From<Processes> for ProcessList {
    fn from(processes: Processes) -> Self {
        Self {
            summary: processes.summary().replace(char::is_control, " "),
            total: processes.total,
            processes: processes.processes.into_iter().map(ProcessEntry::from).collect(),
            terminal: processes
                .terminal
                .map(|Termios { lines, echo }| TerminalEntry { lines, echo }),
        }
    }
}

impl From<Process> for ProcessEntry {
    fn from(process: Process) -> Self {
        Self {
            pid: process.pid,
            parent: process.parent,
            uid: process.uid,
            command: process.command.replace(char::is_control, " "),
            state: state_in_words(process.state).to_owned(),
            waits_for: process
                .waits_for
                .map(|event| event.to_string().replace(char::is_control, " ")),
            reads_terminal: process.reads_terminal,
            wchan: process.wchan,
            cpu_ms: milliseconds(process.cpu),
            cpu_percent: process.cpu_percent,
            memory_bytes: process.memory,
            peak_memory_bytes: process.peak_memory,
            threads: process.threads,
            elapsed_ms: milliseconds(process.elapsed),
            open_files: process.open_files,
            sockets: process.sockets,
            read_bytes: process.transferred.map(|bytes| bytes.read),
            written_bytes: process.transferred.map(|bytes| bytes.written),
            read_bytes_per_s: process.transfer_rate.map(|bytes| bytes.read),
            written_bytes_per_s: process.transfer_rate.map(|bytes| bytes.written),
        }
    }
}

/// A state as ps and proc(5) name it, in words.
fn state_in_words(state: char) -> &'static str {
    match state {
        'R' => "running",
        'D' => "blocked",
        'T' | 't' => "stopped",
        'Z' | 'X' => "ended",
        _ => "sleeping",
    }
}

pub(in crate::verbs) fn milliseconds(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
