//! The verb signal.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::clamp::Clamps;
use crate::error::Error;
use crate::{Clamped, Service, Standing};
use sshjobs_core::jobs::{self, Signal, UnknownSignal, Verb};

/// Send a signal to all processes of a job.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// Job from ssh_spawn.
    pub job_id: String,
    /// Signal name or number. Default TERM.
    #[serde(default)]
    pub signal: Option<String>,
    /// KILL what still lives after this many milliseconds, up to 45000.
    #[serde(default)]
    pub grace_ms: Option<i64>,
}

impl SignalRequest {
    /// A request to send TERM to `job_id`.
    pub fn new(job_id: impl Into<String>) -> Self {
        Self {
            job_id: job_id.into(),
            ..Self::default()
        }
    }
}

/// Result of a signal.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SignalReply {
    /// How it was delivered.
    pub delivered_via: DeliveryRoute,
    /// Whether the host verified that no process of the job's group, and none with its mark, is left.
    pub confirmed_dead: bool,
    /// What could not be verified, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unverified: Option<String>,
    /// State, exit_status and exit_signal.
    #[serde(flatten)]
    pub standing: Standing,
    /// Arguments that were out of range, and the values used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

/// How a signal was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum DeliveryRoute {
    /// To every process of the job.
    ProcessGroup,
    /// As a request to the server, which does not report whether it obeyed.
    Channel,
    /// Not delivered: the job has no process left.
    None,
}

/// Below the timeouts of MCP clients, together with the host's own time to answer.
const LONGEST_GRACE_MS: i64 = 45_000;
/// Time limit for the end of a killed job to be recorded.
const END_SEEN: Duration = Duration::from_secs(3);

impl Service {
    /// Signals all processes of a job over a second channel, and reports the result.
    ///
    /// Cancelling may leave the signal sent.
    pub async fn signal(&self, request: SignalRequest) -> Result<SignalReply, Error> {
        if let Some(replica) = self.replica_of_job(&request.job_id).await {
            return self.perform_at(&replica, "signal", &request).await;
        }
        let job = self.job(Verb::Signal, &request.job_id).await?;
        let signal = match request.signal.as_deref() {
            None => Signal::TERM,
            Some(text) => text.parse().map_err(|error: UnknownSignal| {
                let known = Signal::names().collect::<Vec<_>>().join(", ");
                Error::invalid(error.to_string(), format!("use one of {known}"))
            })?,
        };
        let mut clamps = Clamps::default();
        let grace = request
            .grace_ms
            .map(|grace| clamps.clamp("grace_ms", grace, 0..=LONGEST_GRACE_MS));
        let report = job.signal(signal, grace.map(Duration::from_millis)).await?;
        // The recorder may learn of the end later than this; the reply has the final state.
        if report.confirmed_dead {
            job.wait_within(END_SEEN).await;
        }
        Ok(SignalReply {
            delivered_via: report.delivered_via.into(),
            confirmed_dead: report.confirmed_dead,
            unverified: report.unverified.map(|why| why.to_string()),
            standing: Standing::of(&job.status()),
            clamped: clamps.0,
        })
    }
}

impl From<jobs::DeliveredVia> for DeliveryRoute {
    fn from(via: jobs::DeliveredVia) -> Self {
        match via {
            jobs::DeliveredVia::ProcessGroup => Self::ProcessGroup,
            jobs::DeliveredVia::Channel => Self::Channel,
            jobs::DeliveredVia::Nothing => Self::None,
        }
    }
}
