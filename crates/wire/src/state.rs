//! States of jobs on the wire.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use sshjobs_core::jobs::{Exit, Outcome, Phase, Status};

/// State of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum JobState {
    /// It waits for other jobs or in a queue (see reason).
    Queued,
    /// The host has not confirmed yet that it runs the command.
    Starting,
    /// The command runs, or its output is still being drained.
    Running,
    /// The command exited; see exit_status.
    Exited,
    /// A signal ended the command; see exit_signal.
    Signaled,
    /// The job was lost (see reason); the command may still run.
    Lost,
    /// The host closed the channel without reporting how the command ended.
    Closed,
    /// The command was not started: the host refused it, or could not be reached in time (see reason).
    Refused,
    /// The job's time limit ended it.
    TimedOut,
}

impl JobState {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Queued,
        Self::Starting,
        Self::Running,
        Self::Exited,
        Self::Signaled,
        Self::Lost,
        Self::Closed,
        Self::Refused,
        Self::TimedOut,
    ];

    pub(super) fn of(phase: &Phase) -> Self {
        match phase {
            Phase::Queued => Self::Queued,
            Phase::Starting => Self::Starting,
            Phase::Running => Self::Running,
            Phase::Ended(Outcome::Ended(Exit::Status(_))) => Self::Exited,
            Phase::Ended(Outcome::Ended(Exit::Signal(_))) => Self::Signaled,
            Phase::Ended(Outcome::Lost(..)) => Self::Lost,
            Phase::Ended(Outcome::Closed) => Self::Closed,
            Phase::Ended(Outcome::Refused | Outcome::NotStarted(_)) => Self::Refused,
            Phase::Ended(Outcome::TimedOut(_)) => Self::TimedOut,
        }
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "queued",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Exited => "exited",
            Self::Signaled => "signaled",
            Self::Lost => "lost",
            Self::Closed => "closed",
            Self::Refused => "refused",
            Self::TimedOut => "timed_out",
        }
    }

    /// Whether this state never changes.
    pub fn is_final(self) -> bool {
        !matches!(self, Self::Queued | Self::Starting | Self::Running)
    }
}

/// A job's state and how its command ended; part of most replies.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Standing {
    /// State of the job.
    pub state: JobState,
    /// The command's exit status, once it has exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<u32>,
    /// The signal that ended the command, without SIG.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_signal: Option<String>,
    /// Why the command waits or was not started, or what was lost: connection, server_restarted, host_rebooted, supervisor_died or spool_gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Milliseconds for which the host of a durable job has been unreachable; the job continues there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disconnected_ms: Option<u64>,
    /// Why the output is not stored; absent if it is. Lines evicted from memory are then lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstored: Option<String>,
    /// There may be newer output at another replica of the cluster, which can't be reached. Not in the
    /// schemas, because models pay for each word of them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    #[schemars(skip)]
    pub stale: bool,
}

impl Standing {
    /// The state of a job with this status.
    pub fn of(status: &Status) -> Self {
        let phase = &status.phase;
        let unstored = status.unstored.clone();
        let disconnected = status
            .disconnected
            .map(|time| u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        Self {
            disconnected_ms: disconnected,
            unstored,
            stale: status.is_stale,
            ..Self::of_phase(phase)
        }
    }

    /// Whether the job has ended otherwise than with exit status 0.
    pub fn has_failed(&self) -> bool {
        self.state.is_final() && self.exit_status != Some(0)
    }

    /// The state of a job in this phase.
    pub(super) fn of_phase(phase: &Phase) -> Self {
        let exit = match phase {
            Phase::Queued | Phase::Starting | Phase::Running => None,
            Phase::Ended(outcome) => outcome.exit(),
        };
        let (exit_status, exit_signal) = match exit {
            Some(Exit::Status(status)) => (Some(*status), None),
            Some(Exit::Signal(signal)) => (None, Some(signal.clone())),
            None => (None, None),
        };
        let reason = match phase {
            Phase::Ended(Outcome::NotStarted(why)) => Some(why.clone()),
            Phase::Ended(Outcome::Lost(why, _)) => Some(why.as_str().to_owned()),
            Phase::Queued | Phase::Starting | Phase::Running | Phase::Ended(_) => None,
        };
        let state = JobState::of(phase);
        Self {
            state,
            exit_status,
            exit_signal,
            reason,
            disconnected_ms: None,
            unstored: None,
            stale: false,
        }
    }
}

impl std::fmt::Display for Standing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.state.as_str())?;
        if let Some(status) = self.exit_status {
            write!(f, " with status {status}")?;
        }
        if let Some(signal) = &self.exit_signal {
            write!(f, " by SIG{signal}")?;
        }
        if let Some(reason) = &self.reason {
            write!(f, " ({reason})")?;
        }
        Ok(())
    }
}
