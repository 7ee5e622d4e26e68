//! Filters of the verbs that are for several jobs.

use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCandidates;

use super::candidates;
use super::values::{one_host, time};
use sshjobs_wire::JobState;

/// Which jobs a verb is for, if none is named.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Many jobs")]
pub struct FilterArgs {
    /// Jobs on this host.
    #[arg(long, value_name = "HOST", value_parser = one_host, add = ArgValueCandidates::new(candidates::hosts))]
    pub host: Option<String>,
    /// Jobs with this label.
    #[arg(long, value_name = "LABEL")]
    pub label: Option<String>,
    /// Jobs in this state: queued, starting, running, exited, signaled, lost, closed, refused, timed_out.
    #[arg(long, value_name = "STATE", value_parser = state)]
    pub state: Option<JobState>,
    /// Jobs of this caller; yours are those of `local`.
    #[arg(long, value_name = "NAME")]
    pub caller: Option<String>,
    /// Jobs that were started at least this long ago: 90s, 2h, 1d.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub older: Option<Duration>,
    /// All jobs that the verb can be used on.
    #[arg(long)]
    pub all: bool,
    /// Don't ask before acting on the jobs that a filter selects.
    #[arg(long, short)]
    pub yes: bool,
}

/// The filters, by the names of their options, for verbs that need a job or a filter.
pub(super) const FILTERS: [&str; 6] = ["host", "label", "state", "caller", "older", "all"];

impl FilterArgs {
    /// Whether any filter was given.
    pub fn is_set(&self) -> bool {
        self.host.is_some()
            || self.label.is_some()
            || self.state.is_some()
            || self.caller.is_some()
            || self.older.is_some()
            || self.all
    }
}

/// Parses a state.
pub(super) fn state(name: &str) -> Result<JobState, String> {
    serde_json::from_value(name.into()).map_err(|_| {
        let known = JobState::ALL.map(JobState::as_str).join(", ");
        format!("use one of {known}")
    })
}
