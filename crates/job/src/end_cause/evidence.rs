//! Facts about the end of a job that its outcome does not contain.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::{Kill, Signal, UsageSeries};
use sshjobs_output::Timestamp;

/// Facts about the end of a job that its outcome does not contain. They are kept with its record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct EndEvidence {
    /// The signal that was sent to the job through sshjobs, if any. Of several, the last one that usually ends
    /// a command.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sent: Option<SentSignal>,
    /// Whether the job was ended because it had printed more than its host stores for a job.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub exceeded_quota: bool,
    /// Whether the job was ended because no caller had asked for it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub abandoned: bool,
    /// Whether a signal ended the command, if its parent has noted that. Otherwise the command exited.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub by_signal: Option<bool>,
    /// Time of the end by the host's clock, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended_on_host: Option<u64>,
    /// How often the command was started on its host, if it could be started again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempts: Option<u32>,
    /// Number of GPUs on its host that match its request, once it had to wait.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fitting_gpus: Option<usize>,
    /// GPUs that it was given.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<String>,
    /// Its use of resources over time, if it was given GPUs.
    #[serde(skip_serializing_if = "UsageSeries::is_empty")]
    pub series: UsageSeries,
    /// Resources that the job used.
    pub used: ResourceUse,
}

/// Time of an end that a host has reported in whole `seconds`, in milliseconds, for a job that started at `started`. `None`
/// if it is before the start: the host's clock is behind ours.
pub fn end_by_host_clock(started: Timestamp, seconds: u64) -> Option<Timestamp> {
    let second = seconds.saturating_mul(1000);
    let next_second = second.saturating_add(1000);
    // A short job may start and end within one second.
    (started < next_second).then(|| started.max(second))
}

/// A signal that was sent to a job through sshjobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentSignal {
    /// Its name without `SIG`.
    pub signal: String,
    /// Whether KILL was to follow after a grace. `None` if only the host has noted the signal, which does not
    /// note that.
    pub then_kill: Option<bool>,
}

/// The noted signal of a job before and after a further one was noted.
#[derive(Clone, Debug)]
pub struct SignalNote {
    pub(crate) before: Option<SentSignal>,
    pub(crate) after: Option<SentSignal>,
}

/// Resources that a job used, as its host measured them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResourceUse {
    /// Processor time of the job's processes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu: Option<Duration>,
    /// The most memory that one of the job's processes used, in bytes.
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

impl SentSignal {
    /// A signal as it is sent. `None` if it can't end a job.
    pub(crate) fn of(kill: Kill) -> Option<Self> {
        kill.signal.may_end().then(|| Self {
            signal: kill.signal.name().to_owned(),
            then_kill: Some(kill.grace.is_some()),
        })
    }

    fn usually_ends(&self) -> bool {
        self.signal.parse().is_ok_and(Signal::ends)
    }

    /// Whether it explains that a job was ended by `signal`.
    pub(super) fn explains(&self, signal: Signal) -> bool {
        let killed_later = self.usually_ends() && self.then_kill != Some(false);
        self.signal == signal.name() || (signal == Signal::KILL && killed_later)
    }
}

impl EndEvidence {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Notes that a signal was sent through sshjobs.
    pub(crate) fn note_sent(&mut self, sent: SentSignal) {
        // The same signal, which the host has noted with less.
        let is_known = self
            .sent
            .as_ref()
            .is_some_and(|known| known.signal == sent.signal && sent.then_kill.is_none());
        let is_weaker =
            !sent.usually_ends() && self.sent.as_ref().is_some_and(SentSignal::usually_ends);
        if !is_known && !is_weaker {
            self.sent = Some(sent);
        }
    }

    /// Adds facts that were reported later. They replace earlier ones about the same thing.
    pub(crate) fn merge(&mut self, later: Self) {
        let Self {
            sent,
            exceeded_quota,
            abandoned,
            by_signal,
            ended_on_host,
            attempts,
            fitting_gpus,
            gpus,
            series,
            used,
        } = later;
        if let Some(sent) = sent {
            self.note_sent(sent);
        }
        self.exceeded_quota |= exceeded_quota;
        self.abandoned |= abandoned;
        self.by_signal = by_signal.or(self.by_signal);
        self.ended_on_host = ended_on_host.or(self.ended_on_host);
        self.attempts = attempts.or(self.attempts);
        self.fitting_gpus = fitting_gpus.or(self.fitting_gpus);
        if !gpus.is_empty() {
            self.gpus = gpus;
        }
        series.samples().iter().cloned().for_each(|sample| self.series.add(sample));
        self.used.cpu = used.cpu.or(self.used.cpu);
        self.used.peak_memory = used.peak_memory.or(self.used.peak_memory);
        if !used.memory_kills.is_unknown() {
            self.used.memory_kills = used.memory_kills;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_of_an_end_is_not_before_the_start_unless_clocks_differ() {
        for (started, seconds, end) in [
            (10_700, 10, Some(10_700)),
            (10_000, 10, Some(10_000)),
            (10_700, 11, Some(11_000)),
            (10_700, 9, None),
            (10_000, 9, None),
        ] {
            assert_eq!(
                end_by_host_clock(started, seconds),
                end,
                "{started}, {seconds}"
            );
        }
    }
}
