//! Signals one job: a starting job is cancelled, a running one is signalled, an ended one is
//! searched for remaining processes.

use std::sync::Arc;
use std::time::Duration;

use super::runner::Runner;
use crate::admission::SignalJob;
use crate::hosts::{Asking, Script};
use crate::runner::durable::fenced;
use crate::runner::foreign::look_at_record;
use crate::runner::owner::{OwnerCall, OwnerReply};
use crate::runner::seen_job::Permitted;
use crate::runner::signal::{
    PGID_TIMEOUT, SignalReport, Unverified, cancel_start, end_tree, kill, process_group_told,
    run_on_machine,
};
use crate::runner::state::SignalError;
use sshjobs_job::spool::{self, SpoolReply};
use sshjobs_job::{Fleet, Job, Kill, Phase, Reach, Signal};

/// Time limit for a host to note that a signal is about to be sent.
const NOTE: Duration = Duration::from_secs(10);

impl Runner {
    /// Sends `signal` to every process of a job. With `grace`, processes that are still alive after
    /// it get KILL.
    ///
    /// A job that has ended can be signalled too: its processes may have survived the connection,
    /// or it may have left some in the background. Then only processes with its mark are reached.
    pub async fn signal(
        &self,
        job: Permitted<'_, SignalJob>,
        signal: Signal,
        grace: Option<Duration>,
    ) -> Result<SignalReport, SignalError> {
        let job = job.job();
        let is_queued = job.read_log(|log| *log.phase() == Phase::Queued);
        if is_queued
            && self.owner_name(job).is_none()
            && let Some(report) = cancel_start(&self.shared, job).await
        {
            return Ok(report);
        }
        if let Some(fleet) = &job.fleet {
            return self.signal_fleet(job, fleet, Kill::new(signal, grace)).await;
        }
        // A mirrored record may be a second old, and the job may have started or ended since.
        self.look_again(job).await;
        let phase = job.read_log(|log| log.phase().clone());
        let is_over = matches!(phase, Phase::Ended(_));
        let is_queued = phase == Phase::Queued;
        // First: its host does not know the job yet, and can't note the signal.
        let is_starting = self.shared.registry().is_starting(&job.id);
        if is_starting
            && !phase.has_started()
            && let Some(report) = cancel_start(&self.shared, job).await
        {
            return Ok(report);
        }
        if job.spec.durable && !is_over && !is_queued && signal.may_end() {
            self.note_on_host(job, signal).await?;
        }
        if (!job.spec.durable || is_queued)
            && !is_over
            && let Some(report) = self.signal_by_owner(job, signal, grace).await
        {
            return Ok(report);
        }
        // Read after the calls above, during which the job may have started.
        let stdin = self.shared.registry().stdin(&job.id);
        if !is_over && let Some(stdin) = stdin {
            let report = end_tree(
                &self.shared,
                job,
                Kill::new(signal, grace),
                stdin.controls(),
                Asking::Person,
            )
            .await?;
            if report.confirmed_dead {
                // Only output in flight can still arrive, and there is room for that.
                job.stop_pacing();
            }
            return Ok(report);
        }
        // A job that another process starts can't be cancelled from here.
        if !phase.has_started() && self.owner_name(job).is_none() {
            return match cancel_start(&self.shared, job).await {
                Some(report) => Ok(report),
                // Boxed, because an `async fn` can't contain itself.
                None => Box::pin(self.signal(Permitted::new(job), signal, grace)).await,
            };
        }
        // If another process's job still runs, all of its processes are signalled. It may have been opened
        // just now, so that its output, which begins with its process group, is still being read.
        let reach = if is_over { Reach::Marked } else { Reach::Tree };
        if !is_over {
            process_group_told(job, PGID_TIMEOUT).await;
        }
        let report = kill(
            &self.shared,
            job,
            reach,
            Kill::new(signal, grace),
            Asking::Person,
        )
        .await?;
        // A job that ran a moment ago has ended since, perhaps by this signal: its owner may end with it before it answers.
        if is_over && report.found_nothing() {
            return Err(SignalError::JobEnded);
        }
        Ok(report)
    }

    /// Cancels a queued job of this process. Returns false if it has started meanwhile, or belongs to
    /// another process.
    pub async fn cancel_queued(&self, job: Permitted<'_, SignalJob>) -> bool {
        let job = job.job();
        let is_queued = job.read_log(|log| *log.phase() == Phase::Queued);
        if !is_queued || self.owner_name(job).is_some() {
            return false;
        }
        let report = cancel_start(&self.shared, job).await;
        report.is_some_and(|report| report.confirmed_dead)
    }

    async fn signal_fleet(
        &self,
        job: &Arc<Job>,
        fleet: &Fleet,
        order: Kill,
    ) -> Result<SignalReport, SignalError> {
        let Kill { signal, grace } = order;
        // Now: the signal may end it, and then its owner, before that has answered.
        let was_over = job.is_over();
        // The process that runs the fleet knows all of its members, and starts no further one.
        if !was_over && let Some(report) = self.signal_by_owner(job, signal, grace).await {
            return Ok(report);
        }
        let mut report = self.signal_members(job, fleet, signal, grace).await?;
        if was_over && report.found_nothing() {
            return Err(SignalError::JobEnded);
        }
        if !was_over && !job.is_over() && self.owner_name(job).is_some() {
            report.confirmed_dead = false;
            report.unverified.get_or_insert(Unverified::FleetOwnerSilent);
        }
        Ok(report)
    }

    /// Notes on the host of a durable job that a signal is about to be sent. The job's supervisor sees
    /// only a status of 128 or more and can't distinguish a signal from an exit.
    ///
    /// # Errors
    /// If the host can't be told, or another machine has taken it over. The signal must not be sent
    /// then: the job would look as if it had exited by itself.
    async fn note_on_host(&self, job: &Job, signal: Signal) -> Result<(), SignalError> {
        let note = spool::note_signal(job.id.as_str(), signal.name());
        let note = Script::without_input(fenced(&self.shared, &job.spec.host, note));
        let answer = run_on_machine(&self.shared, job, note, NOTE).await?;
        match SpoolReply::parse(&answer) {
            Some(SpoolReply::Fenced) => Err(SignalError::Fenced),
            _ => Ok(()),
        }
    }

    /// Asks the process that owns an attached job to signal it, because its connection is known to
    /// lead to the job's machine. `None` if that process does not exist or can't do it; then our
    /// own connection is tried.
    async fn signal_by_owner(
        &self,
        job: &Job,
        signal: Signal,
        grace: Option<Duration>,
    ) -> Option<SignalReport> {
        let call = OwnerCall::Signal {
            name: signal.name().to_owned(),
            grace,
        };
        match self.owner_of(job)?.ask(call, &[]).await {
            Ok(OwnerReply::Signalled(report)) => Some(report),
            Ok(OwnerReply::Done | OwnerReply::IsStdinClosed(_) | OwnerReply::Refused(_)) => None,
            Err(error) => {
                tracing::debug!(job = %job.id, %error, "the job's owner did not signal it");
                None
            }
        }
    }

    /// Updates the record of another process's job.
    async fn look_again(&self, job: &Arc<Job>) {
        let Some(storing) = &self.shared.storing else { return };
        if self.owner_name(job).is_none() {
            return;
        }
        if let Some(record) = look_at_record(job, &storing.store).await {
            self.shared.foreign_jobs.note(record);
        }
    }
}
