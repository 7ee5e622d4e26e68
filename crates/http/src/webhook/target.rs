//! Where notifications go.

use secrecy::{ExposeSecret, SecretString};

use super::command::run_command;
use super::post::post;
use sshjobs_job::notify::{Delivery, DeliveryAttempt, ReceiverKey};

/// A target, with everything that an attempt needs.
#[derive(Debug)]
pub(super) struct WebhookTarget {
    /// Where it is.
    pub(super) place: TargetAddress,
    /// Format of the body.
    pub(super) format: BodyFormat,
    /// Signs the body. `None`: it is not signed.
    pub(super) key: Option<ReceiverKey>,
    /// Whether addresses of private networks may be called.
    pub(super) allows_private: bool,
}

/// Where a target is. Both may contain secrets.
#[derive(Clone, Debug)]
pub(super) enum TargetAddress {
    /// A URL, to which the body is sent with POST.
    Url(SecretString),
    /// A program with its arguments, which reads the body from its stdin.
    Command(Vec<SecretString>),
}

/// Format of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum BodyFormat {
    /// All facts, as JSON.
    #[default]
    Json,
    /// The message of an incoming webhook of Slack or Mattermost.
    Slack,
}

impl WebhookTarget {
    /// Tries to deliver once. `now` is in seconds since the Unix epoch.
    pub(super) async fn attempt(&self, delivery: &Delivery, now: u64) -> DeliveryAttempt {
        let body = match self.format {
            BodyFormat::Json => delivery.message.to_json(&delivery.id),
            BodyFormat::Slack => delivery.message.to_slack(),
        };
        let body = body.to_string();
        match &self.place {
            TargetAddress::Url(url) => {
                let signature =
                    self.key.as_ref().map(|key| key.sign(&delivery.id, now, body.as_bytes()));
                let headers = [
                    ("webhook-id", Some(delivery.id.clone())),
                    ("webhook-timestamp", Some(now.to_string())),
                    ("webhook-signature", signature),
                ];
                post(url.expose_secret(), &headers, body, self.allows_private).await
            }
            TargetAddress::Command(words) => run_command(words, delivery, body).await,
        }
    }
}
