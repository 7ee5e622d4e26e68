use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clamp::Clamps;
use super::{Clamped, Error, Service, Standing};
use crate::jobs::{self, Signal, UnknownSignal, Unverified};

/// Send a signal to a job's whole process tree.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SignalRequest {
    /// Job from ssh_spawn.
    pub job_id: String,
    /// Name or number. Default TERM.
    #[serde(default)]
    #[schemars(with = "String")]
    pub signal: Option<String>,
    /// Send KILL to what still lives after this long, up to 45000.
    #[serde(default)]
    #[schemars(with = "i64")]
    pub grace_ms: Option<i64>,
}

impl SignalRequest {
    /// A request to send TERM to `job_id`.
    pub fn new(job_id: impl Into<String>) -> Self {
        Self { job_id: job_id.into(), ..Self::default() }
    }
}

/// What came of a signal.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct SignalReply {
    /// The way it took.
    pub delivered_via: DeliveredVia,
    /// Whether it was verified on the host that no process of the job's group, and none that carries its mark, is left.
    pub confirmed_dead: bool,
    /// What could not be verified, and why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub unverified: Option<String>,
    /// State, exit_status and exit_signal.
    #[serde(flatten)]
    pub standing: Standing,
    /// Arguments that were out of range, and what was used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub clamped: Vec<Clamped>,
}

/// The way a signal took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum DeliveredVia {
    /// To every process of the job.
    ProcessGroup,
    /// Asked of the server, which does not tell whether it obeyed.
    Channel,
    /// No process was there to receive it.
    None,
}

/// Below the time-outs of MCP clients, together with the host's own time to answer.
const LONGEST_GRACE_MS: i64 = 45_000;
/// Time limit for a dead job's end to be seen here.
const END_SEEN: Duration = Duration::from_secs(3);

impl Service {
    /// Signals a job's process tree over a second channel and tells what came of it.
    ///
    /// Cancelling may leave the signal sent.
    pub async fn signal(&self, request: SignalRequest) -> Result<SignalReply, Error> {
        let job = self.job(&request.job_id).await?;
        let signal = match request.signal.as_deref() {
            None => Signal::TERM,
            Some(text) => text.parse().map_err(|error: UnknownSignal| {
                let known = Signal::names().collect::<Vec<_>>().join(", ");
                Error::invalid(error.to_string(), format!("use one of {known}"))
            })?,
        };
        let mut clamps = Clamps::default();
        let grace = request.grace_ms.map(|grace| clamps.clamp("grace_ms", grace, 0..=LONGEST_GRACE_MS));
        let report = job.signal(signal, grace.map(Duration::from_millis)).await?;
        if report.confirmed_dead {
            job.wait_within(END_SEEN).await;
        }
        Ok(SignalReply {
            delivered_via: report.delivered_via.into(),
            confirmed_dead: report.confirmed_dead,
            unverified: report.unverified.map(|why| unverified(why).to_owned()),
            standing: Standing::of(&job.status()),
            clamped: clamps.0,
        })
    }
}

fn unverified(why: Unverified) -> &'static str {
    match why {
        Unverified::Channel => "the server was asked to signal the command; it does not tell whether it did",
        Unverified::Unmarked => {
            "processes of the job's group do not carry its mark; they were left alone, as they may be somebody else's"
        }
        Unverified::Hidden => "no process was found, but this account does not see all processes of the host",
        Unverified::Unseen => "the host does not show its processes (it has no /proc, or no awk)",
        Unverified::NoReport => "the host did not run the script that looks at its processes",
    }
}

impl From<jobs::DeliveredVia> for DeliveredVia {
    fn from(via: jobs::DeliveredVia) -> Self {
        match via {
            jobs::DeliveredVia::ProcessGroup => Self::ProcessGroup,
            jobs::DeliveredVia::Channel => Self::Channel,
            jobs::DeliveredVia::Nothing => Self::None,
        }
    }
}
