//! The verb notifications: deliveries of the caller's jobs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::{Code, Service};
use sshjobs_core::jobs::{Delivery, DeliveryState, clean};

/// Notifications, oldest first.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct NotificationsReply {
    /// Those of the caller's jobs; an admin sees all those of its hosts. They are kept for a day after they are over.
    pub notifications: Vec<NotificationEntry>,
}

/// A notification for one target. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct NotificationEntry {
    /// Its id, which the receiver gets with each attempt.
    pub id: String,
    /// The job.
    pub job_id: String,
    /// The event: `ended`, `prompt`, `silent` or `matched`.
    pub event: String,
    /// The target. Of a URL or a command that a person has named, only its kind and host.
    pub target: String,
    /// `due`, `claimed` by a process that sends it, `delivered`, or `given_up`.
    pub state: String,
    /// Time of the state: when it is sent next, or when it was over.
    pub at: u64,
    /// Time of its creation.
    pub created_at: u64,
    /// Number of attempts.
    pub attempts: u32,
    /// Why the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

impl NotificationEntry {
    fn of(delivery: Delivery) -> Self {
        let (state, at) = match delivery.state {
            DeliveryState::Due(at) => ("due", at),
            DeliveryState::Claimed(at) => ("claimed", at),
            DeliveryState::Delivered(at) => ("delivered", at),
            DeliveryState::GivenUp(at) => ("given_up", at),
        };
        let last_error = delivery.last_error.as_deref();
        Self {
            target: delivery.receiver.shown(),
            job_id: delivery.message.job.job_id.clone(),
            event: delivery.message.occasion.name().to_owned(),
            state: state.to_owned(),
            at,
            id: delivery.id,
            created_at: delivery.created_at,
            attempts: delivery.attempts,
            last_error: last_error.map(|text| clean(text.as_bytes()).into_owned()),
        }
    }
}

impl Service {
    /// Notifications of the caller's jobs.
    pub async fn notifications(&self) -> Result<NotificationsReply, Error> {
        let library = self.library();
        let deliveries = library.notifier().deliveries().await.map_err(|why| {
            Error::new(
                Code::Io,
                format!("the notifications can't be read: {why}"),
                "check that the state directory, or the cluster's NATS, can be read",
            )
        })?;
        let sees_all = library.rights().role.sees_all_jobs();
        let own = library.caller().as_str();
        let visible = deliveries.into_iter().filter(|delivery| {
            let job = &delivery.message.job;
            job.caller == own || (sees_all && library.rights().hosts.contain(&job.host, &[]))
        });
        Ok(NotificationsReply {
            notifications: visible.map(NotificationEntry::of).collect(),
        })
    }
}
