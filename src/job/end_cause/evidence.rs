//! Facts about the end of a job that its outcome does not contain.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::job::Signal;

/// Facts about the end of a job that its outcome does not contain. They are kept with its record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndEvidence {
    /// The last signal that was sent to it through sshjobs and may end it, named without `SIG`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent_signal: Option<String>,
    /// It was ended because it had printed more than its host stores for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exceeded_quota: bool,
    /// Resources that it used.
    pub used: ResourceUse,
}

/// Resources that a job used, as its host measured them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceUse {
    /// Processor time of its processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Duration>,
    /// The most memory that one of its processes used, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peak_memory: Option<u64>,
    /// Processes that the kernel killed while the job ran, because memory ran out.
    #[serde(skip_serializing_if = "MemoryKills::is_unknown")]
    pub memory_kills: MemoryKills,
}

/// Numbers of processes that the kernel killed because memory ran out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemoryKills {
    /// In the control group of the job's supervisor, which other jobs of the host may share.
    pub in_cgroup: Option<u64>,
    /// On the whole host.
    pub on_host: Option<u64>,
}

impl MemoryKills {
    fn is_unknown(&self) -> bool {
        self.in_cgroup.is_none() && self.on_host.is_none()
    }
}

impl EndEvidence {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Notes that a signal was sent through sshjobs, if it may end a job.
    pub(crate) fn note_sent(&mut self, signal: Signal) {
        if signal.may_end() {
            self.sent_signal = Some(signal.name().to_owned());
        }
    }

    /// Adds facts that were reported later. They replace earlier ones about the same thing.
    pub(crate) fn merge(&mut self, later: Self) {
        let Self {
            sent_signal,
            exceeded_quota,
            used,
        } = later;
        self.sent_signal = sent_signal.or(self.sent_signal.take());
        self.exceeded_quota |= exceeded_quota;
        self.used.cpu = used.cpu.or(self.used.cpu);
        self.used.peak_memory = used.peak_memory.or(self.used.peak_memory);
        if !used.memory_kills.is_unknown() {
            self.used.memory_kills = used.memory_kills;
        }
    }
}
