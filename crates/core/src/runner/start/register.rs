//! Step 2: the store learns of the job, and finds a job of another process with the same key.

use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::ready;

use super::reserve::SlotReservation;
use crate::runner::durable::repeat_start;
use crate::runner::foreign::lookup;
use crate::runner::state::RunnerState;
use crate::runner::state::{Lookup, SpawnError};
use sshjobs_job::{Job, JobSpec, Log, Scope};
use sshjobs_store::{Record, StoreError};

impl SlotReservation {
    /// Asks the store to register the job. Does not wait for its answer.
    pub(super) fn register(&mut self) {
        let storing = self.shared.storing.as_ref();
        self.registration = storing
            .zip(self.record.as_ref())
            .map(|(storing, record)| storing.register(record));
    }

    /// The record of another process's job with the same key. Does not wait for the store if the
    /// job has no key.
    pub(super) async fn earlier_record(&mut self) -> Option<Record> {
        self.record.as_ref()?.key.as_ref()?;

        match self.registration.take()?.await {
            Ok(Some(record)) => Some(record),
            answer => {
                // Kept, because `wait_until_registered` reports an error of the store later.
                self.registration = Some(ready(answer).boxed());
                None
            }
        }
    }

    /// In a cluster, waits for the store's answer: nothing may be sent to a host that another replica
    /// holds.
    ///
    /// # Errors
    /// Another replica holds the host, or the job can't be registered.
    pub(super) async fn wait_for_host(&mut self) -> Result<(), SpawnError> {
        let is_shared = self.shared.storing.as_ref().is_some_and(|storing| storing.is_shared);
        if !is_shared {
            return Ok(());
        }
        let host = &self.job.spec.host;
        if self.shared.foreign_jobs.is_leaving(host) {
            return Err(SpawnError::HeldElsewhere {
                host: host.clone(),
                holder: "that takes it over now".to_owned(),
            });
        }
        let Some(registration) = self.registration.take() else { return Ok(()) };
        let answer = registration.await;
        if let Err(StoreError::HeldElsewhere { host, holder }) = answer {
            // Nothing is in the store that would have to be removed.
            self.record = None;
            return Err(SpawnError::HeldElsewhere { host, holder });
        }
        if let Err(error) = answer {
            return Err(SpawnError::Unregistered(error.to_string()));
        }
        self.registration = Some(ready(answer).boxed());
        Ok(())
    }

    /// Waits for the store's answer, if jobs are stored.
    ///
    /// # Errors
    /// The job is not in the store, so no other process can find it.
    pub(super) async fn wait_until_registered(&mut self) -> Result<(), StoreError> {
        let Some(registration) = self.registration.take() else { return Ok(()) };

        registration.await?;
        self.shared.registry().note_stored(&self.job.id);
        Ok(())
    }
}

/// Returns the job that an earlier or another process started with the same key, if that was for
/// the same spec.
pub(super) async fn find_earlier_job(
    shared: &Arc<RunnerState>,
    reservation: SlotReservation,
    earlier: &Record,
) -> Result<Arc<Job>, SpawnError> {
    let fingerprint = reservation.record.as_ref().map(|record| record.fingerprint.clone());
    let spec = reservation.job.spec.clone();
    // First: its slot and its key are not needed, whatever is found.
    reservation.withdraw();
    if fingerprint.as_ref() != Some(&earlier.fingerprint) {
        return Err(SpawnError::KeyReused);
    }

    finish_interrupted_start(shared, spec, earlier).await?;

    match lookup(shared, &Scope::Of(earlier.caller.clone()), &earlier.id).await {
        Lookup::Found(job) => Ok(job),
        Lookup::Expired(tombstone) => Err(SpawnError::Expired(tombstone)),
        // The job was removed since, or its record can't be read.
        Lookup::Unknown => Err(SpawnError::KeyReused),
        Lookup::Unreadable(error) => Err(SpawnError::Unstored(error.to_string())),
    }
}

/// Starts a durable job whose process was killed after it had registered the job and before it
/// recorded that the job runs.
///
/// Whether the host had started it is unknown; the order is safe to repeat, because a host starts
/// each job at most once.
pub(super) async fn finish_interrupted_start(
    shared: &Arc<RunnerState>,
    spec: JobSpec,
    earlier: &Record,
) -> Result<(), SpawnError> {
    let Some(storing) = &shared.storing else { return Ok(()) };
    let was_interrupted = spec.durable && earlier.outcome.is_none() && !earlier.is_running;
    if !was_interrupted || storing.store.owner(&earlier.owner).is_some() {
        return Ok(());
    }

    let log = Log::new(shared.limits.ring(spec.pace));
    // The record's id and mark, by which the host recognizes the job, with the new order's spec,
    // because the record lacks the secrets.
    let job = Job::begun(earlier.identity(), spec, log);
    repeat_start(shared, &job).await
}
