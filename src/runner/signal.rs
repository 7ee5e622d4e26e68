use std::sync::Arc;
use std::time::Duration;

use super::mirror::look_at_record;
use super::on_machine::run_on_machine;
use super::signal_tree::{DeliveredVia, SignalReport, end_tree, kill};
use super::{Runner, SignalError};
use crate::job::{Job, Phase, Reach, Signal};
use crate::spool;

/// Time limit for a host to take note of a signal that is about to be sent.
const NOTE: Duration = Duration::from_secs(5);

impl Runner {
    /// Sends `signal` to every process of a job; with `grace`, what still lives after it gets KILL.
    ///
    /// A job that is over can be signalled too: its processes may have survived the connection, or it may have left some in
    /// the background. Then only those are reached that carry its mark.
    pub async fn signal(
        &self,
        job: &Arc<Job>,
        signal: Signal,
        grace: Option<Duration>,
    ) -> Result<SignalReport, SignalError> {
        if let Some(fleet) = job.fleet.as_ref().filter(|_| !job.is_over()) {
            return self.signal_members(fleet, signal, grace).await;
        }
        self.look_again(job).await;
        let (is_starting, is_over) =
            job.read_log(|log| (*log.phase() == Phase::Starting, log.outcome().is_some()));
        if job.spec.durable && !is_over {
            // Its supervisor sees a status of 128 and more, and can't tell where that comes from.
            let note = spool::note_signal(job.id.as_str(), signal.name());
            let noted = run_on_machine(&self.shared, job, |_| note.clone(), NOTE).await;
            if let Err(error) = noted {
                tracing::debug!(job = %job.id, %error, "the signal is not noted on the host");
            }
        }
        let stdin = self.shared.registry().stdin(&job.id);
        if let Some(stdin) = stdin.filter(|_| !is_over) {
            let report = end_tree(&self.shared, job, (signal, grace), stdin.controls()).await?;
            if report.confirmed_dead {
                // Nothing more comes than what is on its way, and for that there is room.
                job.let_go();
            }
            return Ok(report);
        }
        if is_starting && self.owner(job).is_none() {
            // Nothing was sent yet, and nothing will be.
            self.shared.registry().abandon(&job.id);
            return Ok(SignalReport {
                delivered_via: DeliveredVia::Nothing,
                confirmed_dead: true,
                unverified: None,
            });
        }
        // A job of another process that still runs is reached as a whole.
        let reach = if is_over { Reach::Marked } else { Reach::Tree };
        let report = kill(&self.shared, job, reach, (signal, grace)).await?;
        if report.delivered_via == DeliveredVia::Nothing && report.confirmed_dead {
            return Err(SignalError::JobEnded);
        }
        Ok(report)
    }

    /// Brings the record of a job that is not ours up to date.
    async fn look_again(&self, job: &Arc<Job>) {
        let Some(storing) = self.shared.storing.as_ref().filter(|_| self.owner(job).is_some()) else {
            return;
        };
        if let Some(record) = look_at_record(job, &storing.store).await {
            self.shared.elsewhere.note(record);
        }
    }
}
