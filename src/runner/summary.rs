use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::spawn_blocking;

use super::Runner;
use crate::job::{Caller, Fleet, FleetCounts, Job, JobId, Scope, Status, wall_now};
use crate::output::LineNo;
use crate::store::{Filter, Record, StoreError};

/// A job in a list.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Its name.
    pub id: JobId,
    /// Whose it is.
    pub caller: Caller,
    /// The host it runs on.
    pub host: String,
    /// The command line.
    pub command: String,
    /// The caller's word for it.
    pub label: Option<String>,
    /// Whether it outlives its process and the connection.
    pub durable: bool,
    /// State, times and counts.
    pub status: Status,
    /// The process that records it, when that is another one.
    pub owner: Option<String>,
    /// It was lost, and something of it may still run on its host.
    pub has_leftovers: bool,
    /// How its members stand, when it is a fleet.
    pub members: Option<FleetCounts>,
}

impl Summary {
    /// A job of this process, or one that was opened.
    pub fn of(job: &Job) -> Self {
        Self {
            id: job.id.clone(),
            caller: job.caller.clone(),
            host: job.spec.host.clone(),
            command: job.spec.command.clone(),
            label: job.spec.label.clone(),
            durable: job.spec.durable,
            status: job.status(),
            owner: None,
            has_leftovers: false,
            members: job.fleet.as_ref().map(Fleet::counts),
        }
    }

    fn of_record(record: Record, owner: Option<String>) -> Self {
        let silent_since = record.ended_at.or(record.last_output_at).unwrap_or(record.started_at);
        let status = Status {
            phase: record.phase(),
            started_at: record.started_at,
            first_output_at: record.first_output_at,
            last_output_at: record.last_output_at,
            ended_at: record.ended_at,
            total_lines: record.total_lines,
            total_bytes: record.total_bytes,
            dropped_lines: record.dropped_lines,
            first_available: LineNo::new(record.dropped_lines + 1),
            silent: Duration::from_millis(wall_now().saturating_sub(silent_since)),
            unstored: None,
            disconnected: None,
        };
        Self {
            id: record.id,
            caller: record.caller,
            host: record.host,
            command: record.command,
            label: record.label,
            durable: record.durable,
            status,
            owner,
            has_leftovers: record.has_leftovers,
            members: record.fleet.is_some().then(|| FleetCounts::of(&record.members)),
        }
    }

    fn fits(&self, filter: &Filter) -> bool {
        filter.host.as_ref().is_none_or(|host| *host == self.host)
            && filter.label.as_ref().is_none_or(|label| self.label.as_ref() == Some(label))
            && filter.state.is_none_or(|state| state == self.status.phase.name())
    }
}

impl Runner {
    /// The jobs in scope that fit a filter, of this process and of all others, the newest first; and how many do.
    pub async fn list(&self, scope: &Scope, filter: Filter) -> Result<(Vec<Summary>, usize), StoreError> {
        let caller = match scope {
            Scope::Of(caller) => Some(caller.clone()),
            Scope::All => None,
        };
        let filter = Filter { caller, ..filter };
        let (mut found, mut total) = self.list_stored(filter.clone()).await?;
        let listed: HashSet<JobId> = found.iter().map(|summary| summary.id.clone()).collect();
        let is_listed =
            |job: &&Arc<Job>| scope.has(&job.caller) && (filter.members || job.spec.member_of.is_none());
        let ours: Vec<Arc<Job>> = {
            let registry = self.shared.registry();
            registry.unstored().filter(is_listed).cloned().collect()
        };
        let ours = ours.iter().filter(|job| !listed.contains(&job.id)).map(|job| Summary::of(job));
        let ours: Vec<Summary> = ours.collect();
        if let (true, Some(why)) = (listed.is_empty() && ours.is_empty(), &self.shared.unstored) {
            return Err(StoreError::Records(why.clone()));
        }
        let before = found.len();
        found.extend(ours.into_iter().filter(|summary| summary.fits(&filter)));
        total += found.len() - before;
        found.sort_by_key(|summary| (std::cmp::Reverse(summary.status.started_at), summary.id.clone()));
        found.truncate(filter.limit);
        Ok((found, total))
    }

    async fn list_stored(&self, filter: Filter) -> Result<(Vec<Summary>, usize), StoreError> {
        let Some(storing) = &self.shared.storing else { return Ok((Vec::new(), 0)) };
        storing.flush().await;
        let store = Arc::clone(&storing.store);
        let listing = spawn_blocking(move || {
            let (records, total) = store.list(&filter)?;
            let with_owner = |record: Record| {
                let is_others = record.outcome.is_none() && record.owner != store.own_name();
                let owner = is_others.then(|| store.owner(&record.owner).unwrap_or_default());
                (record, owner)
            };
            Ok::<_, StoreError>((records.into_iter().map(with_owner).collect::<Vec<_>>(), total))
        });
        let (records, total) = listing.await.unwrap_or(Ok((Vec::new(), 0)))?;
        let registry = self.shared.registry();
        let summary = |(record, owner): (Record, Option<String>)| match registry.jobs.get(&record.id) {
            Some(entry) => Summary::of(&entry.job),
            None => Summary::of_record(record, owner),
        };
        Ok((records.into_iter().map(summary).collect(), total))
    }
}
