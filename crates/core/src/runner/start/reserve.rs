//! Step 1: a slot in the registry, which is given back unless the job starts.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::keeping::Registration;
use crate::runner::state::RunnerState;
use crate::runner::state::{Limits, SpawnError, StartOrder, chain};
use sshjobs_job::{Job, JobSpec, Outcome};
use sshjobs_output::RingLimits;
use sshjobs_store::Record;

/// The answer to an order.
pub(super) enum Reserved {
    New(Box<SlotReservation>),
    /// This process has a job with the order's idempotency key.
    KeyInUse {
        job: Arc<Job>,
        order: Box<StartOrder>,
    },
}

/// A slot in the registry for a job that has not started. Dropping it ends the job as not started.
pub(super) struct SlotReservation {
    pub(super) shared: Arc<RunnerState>,
    pub(super) job: Arc<Job>,
    /// Cancelled when the caller is gone or the job was signalled: the launch must stop.
    pub(super) abandoned: CancellationToken,
    /// The reason with which the job ends when this is dropped. None once the job has started.
    pub(super) why_not_started: Option<String>,
    /// Whether the command may have run although the start failed.
    pub(super) may_have_begun: bool,
    /// The job's record, if jobs are stored, until the store or the recording task takes it.
    pub(super) record: Option<Record>,
    /// The answer of the store, from [`register`](Self::register) until it is awaited.
    pub(super) registration: Option<Registration>,
}

/// Reserves a slot for a new job. Does not wait.
pub(super) fn reserve(
    shared: &Arc<RunnerState>,
    order: StartOrder,
) -> Result<Reserved, SpawnError> {
    if shared.stopping.is_cancelled() {
        return Err(SpawnError::ShuttingDown);
    }
    if order.spec.durable
        && let Some(why) = &shared.unstored
    {
        return Err(SpawnError::Unstored(why.to_string()));
    }

    // Locked up to the insertion, so that of two calls with the same key one finds the other's job.
    let mut registry = shared.registry();
    if let Some(job) = registry.by_key(&order)? {
        return Ok(Reserved::KeyInUse {
            job,
            order: Box::new(order),
        });
    }
    registry.check_room(&order.spec, &shared.limits)?;

    let ring = ring_limits(shared, &order.spec);
    let job = Arc::new(Job::with_id(order.id, order.caller, order.spec, ring));
    job.note_trouble(shared.unstored.as_ref().map(ToString::to_string));

    let record = shared.storing.is_some().then(|| {
        let key = order.key.as_ref().map(|(_, key)| key.as_str());
        Record::new(&job, key, job.spec.fingerprint(&registry.secret))
    });
    let abandoned = registry.insert(Arc::clone(&job), order.key);

    Ok(Reserved::New(Box::new(SlotReservation {
        shared: Arc::clone(shared),
        job,
        abandoned,
        // The reason if nothing else is set: a task that was aborted, or a caller that went away.
        why_not_started: Some(chain(&SpawnError::ShuttingDown)),
        may_have_begun: true,
        record,
        registration: None,
    })))
}

fn ring_limits(shared: &RunnerState, spec: &JobSpec) -> RingLimits {
    let limits = shared.limits.ring(spec.pace);
    let is_stored_member = spec.member_of.is_some() && shared.storing.is_some();
    // A member's lines are also in the log of its fleet, and all of them in the store.
    if is_stored_member {
        Limits::of_member(limits)
    } else {
        limits
    }
}

impl SlotReservation {
    /// The job has started: dropping the reservation no longer ends it. Returns the record to keep
    /// up to date.
    pub(super) fn commit(&mut self) -> Option<Record> {
        self.why_not_started = None;
        self.record.take()
    }

    /// Sets the reason with which the job ends when the reservation is dropped.
    pub(super) fn fail(&mut self, error: &SpawnError) {
        self.why_not_started = Some(chain(error));
        self.may_have_begun = !error.has_started_nothing();
    }

    /// Gives the slot back for a job whose key the store has for another job.
    pub(super) fn withdraw(mut self) {
        // Without a record the store is left alone: it has the other job's.
        self.record = None;
    }
}

impl Drop for SlotReservation {
    fn drop(&mut self) {
        let Some(why) = self.why_not_started.take() else {
            return;
        };
        let is_ordered = self.job.spec.may_wait();
        let is_put_aside =
            is_ordered && self.job.spec.durable && self.shared.stopping.is_cancelled();
        let is_left_to_others = is_put_aside || self.job.is_given_up();
        if is_left_to_others {
            // Without a record, the stored one is left as it is, and the job keeps its place: the next
            // process that serves launches it.
            self.record = None;
        } else if is_ordered {
            self.shared.leave_queue_later(&self.job);
        }

        // Before the job ends: a call that waits for the same key wakes up then and must find the
        // key free.
        self.shared.registry().fail(&self.job.id);
        let outcome = Outcome::NotStarted(why);
        self.job.end(outcome.clone());

        let is_visible = self.shared.registry().is_known(&self.job.id);
        // Another job has its key, or another replica its host.
        let is_withdrawn = self.shared.storing.is_some() && self.record.is_none();
        // After the end, so that a record which is kept has the outcome.
        if let Some(storing) = &self.shared.storing
            && let Some(record) = self.record.take()
        {
            storing.settle(&self.job, record, is_visible, self.may_have_begun);
        }
        // Its caller may have its id, and expects that it starts.
        if (is_ordered || is_visible) && !is_left_to_others && !is_withdrawn {
            self.shared.observer.note_end(&self.job, &outcome);
        }
    }
}
