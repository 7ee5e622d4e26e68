//! The verb jobs for one job, which may be asked for its processes.

use super::end_reason::EndReason;
use super::hints::first_error;
use super::jobs::{JobEntry, JobsReply, JobsRequest};
use super::processes::ProcessList;
use crate::clamp::Clamps;
use crate::error::{Code, Error};
use crate::{JobState, Service};
use sshjobs_core::jobs::{self, Job, ReadableJob, SignalError, Verb};

impl Service {
    /// One job, with a detail if requested.
    pub(in crate::verbs) async fn one_job(
        &self,
        id: &str,
        request: &JobsRequest,
    ) -> Result<JobsReply, Error> {
        let clamps = Clamps::default();
        if request.detail.is_none() {
            let job = self.job(Verb::Jobs, id).await?.named().await;
            let mut entries = vec![with_usage(&job)];
            if !request.cached {
                self.note_awaiting_input(&mut entries, false).await;
            }
            self.note_reasons(&mut entries).await;
            self.note_results(&mut entries).await;
            entries.retain(|entry| request.selects(entry));
            return Ok(JobsReply::of(entries, clamps));
        }
        if let Some(replica) = self.replica_of_job(id).await {
            return self.perform_at(&replica, "jobs", request).await;
        }
        // Arguments of processes may say more than the list of jobs.
        let job = self.readable(Verb::Read, id).await?;
        let mut entry = with_usage(&job);
        if !request.selects(&entry) {
            return Ok(JobsReply::of(Vec::new(), clamps));
        }
        if entry.standing.state == JobState::Queued {
            // It has no processes yet.
            entry.note_turn(job.waits_for().await);
        } else {
            entry.processes = self.processes_of(&job).await?;
        }
        if entry.processes.is_none() && job.is_over() {
            // It may have ended since the entry was made.
            entry = with_usage(&job);
            entry.why = EndReason::of(&job).await;
            entry.first_error = first_error(&job).await;
        }
        let mut entries = vec![entry];
        self.note_results(&mut entries).await;
        Ok(JobsReply::of(entries, clamps))
    }

    /// The processes of a job. `None` if it has ended.
    async fn processes_of(&self, job: &ReadableJob) -> Result<Option<ProcessList>, Error> {
        if job.is_fleet() {
            return Err(Error::new(
                Code::Unsupported,
                format!("{} is a fleet, which has no processes of its own", job.id()),
                "name one of its members, as FLEET/HOST",
            ));
        }
        if job.is_over() {
            return Ok(None);
        }
        match job.processes().await {
            Ok(Some(processes)) => Ok(Some(processes.into())),
            Ok(None) => Err(Error::new(
                Code::Unsupported,
                format!("{} does not describe its processes", job.host()),
                "it needs Linux's /proc, and awk; if it has them and is busy, try again",
            )),
            // No process group is known, because the host was never reached. That is reported as `JobEnded`.
            Err(jobs::Error::Signal(SignalError::JobEnded))
                if job.status().disconnected.is_some() =>
            {
                Err(out_of_reach(job))
            }
            Err(jobs::Error::Signal(SignalError::JobEnded)) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }
}

/// The entry of a job, with its use of resources over time.
fn with_usage(job: &Job) -> JobEntry {
    JobEntry {
        usage: job.status().evidence.series.samples().to_vec(),
        ..JobEntry::of(job)
    }
}

fn out_of_reach(job: &Job) -> Error {
    let (host, id) = (job.host(), job.id());
    Error::new(
        Code::Unreachable,
        format!("{host} is out of reach, so the processes of {id} are not known"),
        "check that it resolves and answers here; the job may still run, or have ended",
    )
    .retryable()
}
