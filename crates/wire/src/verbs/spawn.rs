use futures_util::FutureExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::command::CommandRequest;
use crate::error::Error;
use crate::leave_out::is_false;
use crate::{JobState, Service};
use sshjobs_core::jobs::{Job, Phase, Stdin, timestamp_of};

/// Start a command on a host.
pub type SpawnRequest = CommandRequest;

/// A job that was started.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SpawnReply {
    /// Id for ssh_tail and the other tools.
    pub job_id: String,
    /// The host it runs on.
    pub host: String,
    /// running, queued, starting if the host is slow, or a final state if the command was quick.
    pub state: JobState,
    /// What a queued job waits for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub reason: Option<String>,
    /// Time of the start, in milliseconds since the Unix epoch.
    pub started_at: u64,
    /// Whether it outlives this server and the connection.
    #[serde(default, skip_serializing_if = "is_false")]
    pub durable: bool,
    /// Why the output is not stored; absent if it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unstored: Option<String>,
}

/// What a queued job waits for, in words. `None` if it is not queued.
pub(super) async fn waits_for(job: &Job) -> Option<String> {
    if job.status().phase != Phase::Queued {
        return None;
    }
    job.waits_for().await.map(|waits_for| waits_for.to_string())
}

impl Service {
    /// Starts a job and returns once the host runs it. Stdin stays open unless the request has its
    /// text.
    ///
    /// If cancelled early, nothing is started; later, the job continues and [`jobs`](Self::jobs)
    /// lists it. A host that takes longer than `max_wait_ms` leaves the job `starting`.
    pub async fn spawn(&self, request: SpawnRequest) -> Result<SpawnReply, Error> {
        self.on_any(request, |request| self.spawn_on(request).boxed()).await
    }

    async fn spawn_on(&self, request: SpawnRequest) -> Result<SpawnReply, Error> {
        if let Some(replica) = self.replica_of_host(&request.host).await? {
            return self.perform_at(&replica, "spawn", &request).await;
        }
        let request = self.with_tree(request).await?;
        let patience = self.limits().max_wait;
        let (target, command) = request.into_command(&self.jobs, Stdin::Open)?;
        let job = self.jobs.spawn(target, command.start_within(patience)).await?;
        let status = job.status();
        Ok(SpawnReply {
            job_id: job.id().to_owned(),
            host: job.host().to_owned(),
            state: JobState::of(&status.phase),
            reason: waits_for(&job).await,
            started_at: timestamp_of(status.started_at),
            durable: job.is_durable(),
            unstored: status.unstored,
        })
    }
}
