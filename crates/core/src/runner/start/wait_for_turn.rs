//! Between steps 2 and 3, for a job that comes after others or is in a queue: it waits for its turn.

use std::sync::Arc;

use super::reserve::SlotReservation;
use crate::runner::state::{QueuedJob, RunnerState, SpawnError, chain};
use crate::runner::turn::take_turn;
use sshjobs_store::Record;

impl SlotReservation {
    /// The reservation of a job that another process has left in its queue.
    pub(super) fn of_queued(shared: &Arc<RunnerState>, queued: QueuedJob) -> Self {
        let QueuedJob {
            job,
            record,
            abandoned,
        } = queued;
        Self {
            shared: Arc::clone(shared),
            job,
            abandoned,
            why_not_started: Some(chain(&SpawnError::ShuttingDown)),
            may_have_begun: true,
            record: Some(record),
            registration: None,
        }
    }

    /// Waits until it is the job's turn. If the program ends meanwhile, a durable job keeps its record and
    /// its place, for the process that adopts it.
    ///
    /// # Errors
    /// Why the job is not started.
    pub(super) async fn wait_for_turn(&mut self) -> Result<(), SpawnError> {
        // First: with the record other processes can find the job while it waits.
        if let Err(error) = self.wait_until_registered().await {
            let error = SpawnError::Unstored(error.to_string());
            self.fail(&error);
            return Err(error);
        }
        // Others must be able to find and cancel it, although its caller may be waiting.
        self.shared.registry().mark_visible(&self.job.id);
        match take_turn(&self.shared, &self.job, &self.abandoned).await {
            Ok(()) => {
                self.admit().await;
                Ok(())
            }
            Err(error) => {
                self.fail(&error);
                Err(error)
            }
        }
    }

    /// Notes that the job may start. The record first: a process that adopts the job must know that its
    /// start may have been sent.
    async fn admit(&mut self) {
        if let Some(storing) = self.shared.storing.clone()
            && let Some(record) = &mut self.record
        {
            record.is_admitted = true;
            let record = Record {
                owner: storing.store.own_name().to_owned(),
                ..record.clone()
            };
            let stored = storing.blocking(move |store| store.put(&[record])).await;
            if let Some(Err(error)) = stored {
                // It is started all the same: its caller waits, and only a kill at this moment needs the note.
                tracing::warn!(job = %self.job.id, %error, "its admission is not stored");
            }
        }
        self.job.admit();
    }
}
