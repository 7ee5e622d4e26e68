//! Lists jobs: those of this process and those in the store.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::orphan_states::look_at_orphans;
use super::runner::Runner;
use super::summary::Summary;
use crate::keeping::FLUSH_TO_READ;
use sshjobs_job::{Job, JobId, Scope};
use sshjobs_store::{Filter, Record, StoreError};

/// State of jobs that, by their records, may have ended since.
const RUNNING: &str = "running";

impl Runner {
    /// The durable jobs that this process records: fleets, their members and others.
    pub(crate) fn recorded_durable_jobs(&self) -> Vec<Arc<Job>> {
        let registry = self.shared.registry();
        registry.recorded().filter(|job| job.spec.durable).cloned().collect()
    }

    /// The newest jobs of all processes that are in scope and match a filter, and the number of all
    /// that match.
    ///
    /// With `look`, first asks the hosts of durable jobs that no process follows, within that time.
    pub async fn list(
        &self,
        scope: &Scope,
        filter: Filter,
        look: Option<Duration>,
    ) -> Result<(Vec<Summary>, usize), StoreError> {
        let caller = match scope {
            Scope::Of(caller) => Some(caller.clone()),
            Scope::All => None,
        };
        let filter = Filter { caller, ..filter };
        let (mut found, mut total) = self.list_stored(filter.clone()).await?;
        if let Some(patience) = look {
            if filter.state.is_some_and(|state| state != RUNNING) {
                // The records may still call a job running that has ended since.
                let running = Filter {
                    state: Some(RUNNING),
                    ..filter.clone()
                };
                let (orphans, _) = self.list_stored(running).await?;
                let listed = found.len();
                found.extend(orphans.into_iter().filter(Summary::is_orphan));
                total += found.len() - listed;
            }
            look_at_orphans(&self.shared, &mut found, patience).await;
            let before = found.len();
            found.retain(|summary| summary.fits(&filter));
            total = total.saturating_sub(before - found.len());
        }
        let listed: HashSet<JobId> = found.iter().map(|summary| summary.id.clone()).collect();
        // Jobs that the store lacks: they can't be stored, or are not registered yet.
        let ours: Vec<Arc<Job>> = {
            let registry = self.shared.registry();
            registry
                .unstored()
                .filter(|job: &&Arc<Job>| {
                    scope.has(&job.caller) && (filter.members || job.spec.member_of.is_none())
                })
                .cloned()
                .collect()
        };
        let ours = ours.iter().filter(|job| !listed.contains(&job.id)).map(|job| Summary::of(job));
        let ours: Vec<Summary> = ours.collect();
        if listed.is_empty()
            && ours.is_empty()
            && let Some(why) = &self.shared.unstored
        {
            return Err(why.clone());
        }
        let before = found.len();
        found.extend(ours.into_iter().filter(|summary| summary.fits(&filter)));
        total += found.len() - before;
        found.sort_by_key(|summary| {
            (
                std::cmp::Reverse(summary.status.started_at),
                summary.id.clone(),
            )
        });
        found.truncate(filter.limit);
        Ok((found, total))
    }

    async fn list_stored(&self, filter: Filter) -> Result<(Vec<Summary>, usize), StoreError> {
        let Some(storing) = &self.shared.storing else { return Ok((Vec::new(), 0)) };
        storing.flush(FLUSH_TO_READ).await;
        let listing = storing.blocking(move |store| {
            let (records, total) = store.list(&filter)?;
            Ok::<_, StoreError>((
                records
                    .into_iter()
                    .map(|record: Record| {
                        let is_others =
                            record.outcome.is_none() && record.owner != store.own_name();
                        // An empty name means that the process has ended;
                        // see `Summary::is_orphan`.
                        let owner =
                            is_others.then(|| store.owner(&record.owner).unwrap_or_default());
                        (record, owner)
                    })
                    .collect::<Vec<_>>(),
                total,
            ))
        });
        let (records, total) = listing.await.unwrap_or(Ok((Vec::new(), 0)))?;
        // A job of this process has a newer state than its record.
        let registry = self.shared.registry();
        Ok((
            records
                .into_iter()
                .map(|(record, owner): (Record, Option<String>)| {
                    match registry.jobs.get(&record.id) {
                        Some(entry) => Summary::of(&entry.job),
                        None => Summary::of_record(record, owner),
                    }
                })
                .collect(),
            total,
        ))
    }
}
