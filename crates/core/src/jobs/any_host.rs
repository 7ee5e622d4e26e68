//! One of several hosts for a job.

use std::collections::HashMap;
use std::time::Duration;

use futures_util::{StreamExt, stream};
use tokio::time::timeout;

use super::error::Error;
use super::fleet::FleetSpec;
use super::jobs::{Jobs, ORPHANS_TIME};
use crate::runner::Summary;
use sshjobs_job::{GpuRequest, Scope};
use sshjobs_policy::Verb;
use sshjobs_store::Filter;

/// States of jobs that have not ended, by their names.
const UNFINISHED: [&str; 3] = ["queued", "starting", "running"];
/// Maximum jobs of each state that are looked at.
const MOST_UNFINISHED: usize = 10_000;
/// Maximum hosts that are asked for their capacity at the same time and, for a job without GPUs, at all: those with the fewest jobs.
const MOST_ASKED: usize = 32;
/// Time limit for the answers.
const ASK_TIME: Duration = Duration::from_secs(5);

/// A choice of one of several hosts.
#[derive(Clone, Debug, Default)]
pub struct HostChoice {
    /// The hosts: names, patterns and tags, as for a fleet.
    pub words: Vec<String>,
    /// Prefer the host with the most jobs, and not that with the fewest.
    pub pack: bool,
    /// GPUs that the job needs.
    pub gpus: Option<GpuRequest>,
}

/// Whether a host has the GPUs that a job needs. The first is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum GpuRoom {
    /// It has free ones, or the job needs none.
    Free,
    /// Its free ones are too few, or it did not say.
    Later,
    /// It has too few that fit.
    Never,
}

/// A host as a candidate. The first is the best.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rank {
    gpus: GpuRoom,
    /// Unfinished jobs there, negative with `pack`.
    jobs: i64,
    /// Tenths of the load for each processor. The most if it is unknown.
    load: u32,
}

impl Jobs {
    /// The hosts of a choice, in the order in which they are tried: those with free GPUs first if the job needs some, then by
    /// the number of unfinished jobs, then by load.
    ///
    /// # Errors
    /// [`Error::Refused`] if the words name no host.
    pub async fn candidates(&self, choice: &HostChoice) -> Result<Vec<String>, Error> {
        let words = choice.words.iter().cloned();
        let hosts = FleetSpec::of(words).plan(&self.door).await?.members.to_vec();
        let mut jobs_on: HashMap<String, i64> = HashMap::new();
        for job in self.unfinished().await? {
            // A fleet is on its hosts by its members.
            if job.members.is_none() {
                *jobs_on.entry(job.facts.host).or_default() += 1;
            }
        }
        let mut hosts: Vec<(String, i64)> = hosts
            .into_iter()
            .map(|host| {
                let jobs = jobs_on.get(&host).copied().unwrap_or_default();
                (host, if choice.pack { -jobs } else { jobs })
            })
            .collect();
        hosts.sort_by_key(|(_, jobs)| *jobs);
        // GPUs are more important than jobs, so every host is asked for them.
        let most_asked = if choice.gpus.is_some() {
            hosts.len()
        } else {
            MOST_ASKED.min(hosts.len())
        };
        let rest = hosts.split_off(most_asked);
        let asked = hosts.into_iter().map(async |(host, jobs)| {
            let rank = self.rank(&host, jobs, choice.gpus.as_ref()).await;
            (host, rank)
        });
        let mut ranked: Vec<(String, Rank)> =
            stream::iter(asked.collect::<Vec<_>>()).buffered(MOST_ASKED).collect().await;
        ranked.sort_by_key(|(_, rank)| *rank);
        let asked = ranked.into_iter().map(|(host, _)| host);
        Ok(asked.chain(rest.into_iter().map(|(host, _)| host)).collect())
    }

    async fn rank(&self, host: &str, jobs: i64, gpus: Option<&GpuRequest>) -> Rank {
        let unknown = Rank {
            gpus: gpus.map_or(GpuRoom::Free, |_| GpuRoom::Later),
            jobs,
            load: u32::MAX,
        };
        // Callers that may not probe a host get no information about it.
        let Ok(permit) = self.door.admission.admit_connection(Verb::Probe, host).await else {
            return unknown;
        };
        let asking = self.door.runner().capacity_of(permit.host());
        // A host that does not answer is tried when its turn comes, and then says why.
        let Ok(Ok(capacity)) = timeout(ASK_TIME, asking).await else { return unknown };
        let fitting = |request: &GpuRequest| {
            let fitting = capacity.gpus.iter().filter(|gpu| gpu.fits(&request.kind));
            let free = fitting.clone().filter(|gpu| gpu.is_free()).count();
            match (free >= request.count, fitting.count() >= request.count) {
                (true, _) => GpuRoom::Free,
                (false, true) => GpuRoom::Later,
                (false, false) => GpuRoom::Never,
            }
        };
        Rank {
            gpus: gpus.map_or(GpuRoom::Free, fitting),
            load: capacity.load.map_or(u32::MAX, tenths),
            ..unknown
        }
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

/// A load in tenths, so that two nearly idle hosts are equal.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it is clamped first"
)]
fn tenths(load: f64) -> u32 {
    (load.clamp(0.0, 1e6) * 10.0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_gpus_come_before_few_jobs_and_few_jobs_before_a_low_load() {
        let rank = |gpus, jobs, load| Rank { gpus, jobs, load };
        let best_first = [
            rank(GpuRoom::Free, 0, 3),
            rank(GpuRoom::Free, 0, 20),
            rank(GpuRoom::Free, 0, u32::MAX),
            rank(GpuRoom::Free, 1, 0),
            rank(GpuRoom::Later, 0, 0),
            rank(GpuRoom::Never, 0, 0),
        ];
        assert!(best_first.is_sorted());
    }
}
