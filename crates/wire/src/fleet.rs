//! Fleets in replies.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::leave_out::{is_zero, is_zero_count};
use super::state::{JobState, Standing};
use sshjobs_core::jobs::{FleetCounts, FleetSummary, MemberGroup, Outcome, Phase};

/// Member counts of a fleet, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Members {
    /// Exited with 0.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub ok: usize,
    /// Failed or lost.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub failed: usize,
    /// Could not be started.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub unreachable: usize,
    /// Running.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub running: usize,
    /// Not started.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub not_started: usize,
}

/// Members that ended with the same outcome and the same output.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Group {
    /// Their names, folded: web[1-3,7].
    pub members: String,
    /// Number of members.
    pub count: usize,
    /// Their state: `starting` for members that were never started.
    pub state: JobState,
    /// Their exit status, if they exited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_status: Option<u32>,
    /// Their outcome, in words.
    pub end: String,
    /// Number of lines that each printed.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub lines: u64,
    /// Their last lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
}

impl From<FleetCounts> for Members {
    fn from(counts: FleetCounts) -> Self {
        // Destructured, so that the compiler finds a new count that is missing here.
        let FleetCounts {
            ok,
            failed,
            unreachable,
            running,
            not_started,
        } = counts;
        Self {
            ok,
            failed,
            unreachable,
            running,
            not_started,
        }
    }
}

impl Group {
    /// The groups of a fleet; empty while no member has ended.
    pub(super) fn all(summary: FleetSummary) -> Vec<Self> {
        let stopped_by = summary.stopped_by.as_deref();
        summary.groups.into_iter().map(|group| Self::of(group, stopped_by)).collect()
    }

    /// `stopped_by` is the reason for which members were not started.
    fn of(group: MemberGroup, stopped_by: Option<&str>) -> Self {
        let phase = group.outcome.clone().map_or(Phase::Starting, Phase::Ended);
        let standing = Standing::of_phase(&phase);
        let end = match &group.outcome {
            None => stopped_by.map_or_else(
                || "not started".to_owned(),
                |why| format!("not started: {why}"),
            ),
            Some(Outcome::NotStarted(why)) => why.clone(),
            Some(_) => standing.to_string(),
        };
        Self {
            members: group.folded(),
            count: group.members.len(),
            state: standing.state,
            exit_status: standing.exit_status,
            end,
            lines: group.lines,
            last_lines: group.last,
        }
    }
}
