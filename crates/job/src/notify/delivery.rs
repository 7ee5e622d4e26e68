//! One notification for one target.

use serde::{Deserialize, Serialize};

use super::message::Notification;
use super::receiver::Receiver;

/// A notification for one target. Times are in milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delivery {
    /// Id, the same for each attempt.
    pub id: String,
    /// Receiver.
    pub receiver: Receiver,
    /// The content.
    pub message: Notification,
    /// Time of its creation.
    pub created_at: u64,
    /// Number of attempts that were begun.
    pub attempts: u32,
    /// Its state.
    pub state: DeliveryState,
    /// Reason for which the last attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// State of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", content = "at", rename_all = "snake_case")]
pub enum DeliveryState {
    /// To be sent at this time at the earliest.
    Due(u64),
    /// Claimed by a process that sends it, until this time.
    Claimed(u64),
    /// Accepted by the target at this time.
    Delivered(u64),
    /// Given up at this time.
    GivenUp(u64),
}

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DeliveryAttempt {
    /// The target has accepted it.
    Accepted,
    /// It failed, and may succeed later.
    Failed(String),
    /// It failed for good.
    Refused(String),
}

impl DeliveryState {
    /// Whether it is delivered or given up.
    pub fn is_final(self) -> bool {
        matches!(self, Self::Delivered(_) | Self::GivenUp(_))
    }

    /// When it can be claimed. `None` if it is over.
    pub(super) fn claimable_at(self) -> Option<u64> {
        match self {
            Self::Due(at) | Self::Claimed(at) => Some(at),
            Self::Delivered(_) | Self::GivenUp(_) => None,
        }
    }
}
