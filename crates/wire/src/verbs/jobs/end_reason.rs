//! Why a job ended, as a detail of the verb jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::processes::milliseconds;
use sshjobs_core::jobs::{EndCause, Job, ResourceUse};

/// Why a job ended, and the resources that it used as far as its host measures them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct EndReason {
    /// `exited`, `sent_signal` (through sshjobs), `time_limit`, `output_limit`, `abandoned`, `out_of_memory`, `crashed`,
    /// `unknown_sender` (of a signal), or `see_state` if the state says all.
    pub cause: String,
    /// The same, in a sentence.
    pub summary: String,
    /// Processor time of its processes. Known of durable jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_ms: Option<u64>,
    /// The most memory that one of its processes used. Known of durable jobs, if their host has perl.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// Number of processes that the kernel killed while the job ran because memory ran out, in the job's
    /// control group, which other jobs may share. Known of durable jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_kills_in_cgroup: Option<u64>,
    /// The same on the whole host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_kills_on_host: Option<u64>,
}

impl EndReason {
    /// Why a job ended. `None` if it has not.
    pub(in crate::verbs) async fn of(job: &Job) -> Option<Self> {
        let cause = job.end_cause().await?;
        Some(Self::new(job, &cause))
    }

    fn new(job: &Job, cause: &EndCause) -> Self {
        let ResourceUse {
            cpu,
            peak_memory,
            memory_kills,
        } = job.status().evidence.used;
        Self {
            cause: cause.name().to_owned(),
            summary: format!("{} {cause}", job.id()).replace(char::is_control, " "),
            cpu_ms: cpu.map(milliseconds),
            peak_memory_bytes: peak_memory,
            memory_kills_in_cgroup: memory_kills.in_cgroup,
            memory_kills_on_host: memory_kills.on_host,
        }
    }
}
