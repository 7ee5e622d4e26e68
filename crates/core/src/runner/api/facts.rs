//! How a job stands, for callers who see it. Nothing here shows output.

use std::time::Duration;

use super::runner::Runner;
use super::summary::Summary;
use crate::hosts::HostRef;
use crate::runner::SeenJob;
use crate::runner::SpawnError;
use crate::runner::turn::{HostCapacity, WaitsFor, capacity_of, waits_for};
use sshjobs_job::AwaitsStdin;
use sshjobs_output::{Selection, looks_like_prompt};

/// Silence after which a line without an end may be a prompt.
const SILENCE: Duration = Duration::from_millis(200);

impl Runner {
    /// The process that records a job, if it is not this one.
    pub fn owner(&self, job: &SeenJob) -> Option<String> {
        self.owner_name(&job.0)
    }

    /// The reason for which a job is queued now. `None` if it may start.
    pub async fn waits_for(&self, job: &SeenJob) -> Option<WaitsFor> {
        waits_for(&self.shared, &job.0).await
    }

    /// The GPUs and the load of a host.
    pub(crate) async fn capacity_of(&self, host: &HostRef) -> Result<HostCapacity, SpawnError> {
        capacity_of(&self.shared, host).await
    }

    /// A job as an entry of a list.
    pub fn summary(&self, job: &SeenJob) -> Summary {
        let owner = if job.is_over() { None } else { self.owner(job) };
        Summary {
            owner,
            ..Summary::of(&job.0)
        }
    }

    /// Whether a job seems to wait for input: it is silent after a line without an end, and its host
    /// confirms it, or the line looks like a prompt.
    pub async fn awaits_input(&self, job: &SeenJob, selection: Selection) -> bool {
        let Some(text) = job.0.read_log(|log| log.silent_partial(selection, SILENCE)) else {
            return false;
        };
        // Before `awaits_stdin`, which takes a round trip to the host. The check fails if the
        // job does not run or its process can't be asked: its stdin then counts as closed.
        if self.is_stdin_closed(job).await.unwrap_or(true) {
            return false;
        }
        match self.awaits_stdin(&job.0).await {
            Some(AwaitsStdin::Yes) => true,
            Some(AwaitsStdin::No) => false,
            Some(AwaitsStdin::Perhaps) | None => looks_like_prompt(&text),
        }
    }
}
