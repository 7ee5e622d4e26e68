//! One of several hosts for a job.

use std::collections::HashMap;

use super::error::Error;
use super::fleet::FleetSpec;
use super::jobs::{Jobs, ORPHANS_TIME};
use crate::runner::Summary;
use sshjobs_job::Scope;
use sshjobs_store::Filter;

/// States of jobs that have not ended, by their names.
const UNFINISHED: [&str; 3] = ["queued", "starting", "running"];
/// Maximum jobs of each state that are looked at.
const MOST_UNFINISHED: usize = 10_000;

impl Jobs {
    /// The hosts that words name, in the order in which they are tried for a job that needs one of them: those with the fewest
    /// unfinished jobs first, or with `pack` last.
    ///
    /// # Errors
    /// [`Error::Refused`] if the words name no host.
    pub async fn candidates(&self, words: &[String], pack: bool) -> Result<Vec<String>, Error> {
        let mut hosts =
            FleetSpec::of(words.iter().cloned()).plan(&self.door).await?.members.to_vec();
        let mut busy: HashMap<String, usize> = HashMap::new();
        for job in self.unfinished().await? {
            // A fleet is on its hosts by its members.
            if job.members.is_none() {
                *busy.entry(job.facts.host).or_default() += 1;
            }
        }
        let count = |host: &String| busy.get(host).copied().unwrap_or_default();
        hosts.sort_by_key(|host| {
            let count = count(host);
            if pack { usize::MAX - count } else { count }
        });
        Ok(hosts)
    }

    /// The jobs of all callers that have not ended, also members of fleets.
    pub(super) async fn unfinished(&self) -> Result<Vec<Summary>, Error> {
        let mut unfinished = Vec::new();
        for state in UNFINISHED {
            let filter = Filter {
                state: Some(state),
                members: true,
                limit: MOST_UNFINISHED,
                ..Filter::default()
            };
            let runner = &self.door.inside.runner;
            unfinished.extend(runner.list(&Scope::All, filter, Some(ORPHANS_TIME)).await?.0);
        }
        Ok(unfinished)
    }
}
