//! The carrier, which sends deliveries to webhooks and commands.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use secrecy::SecretString;
use secrecy::zeroize::Zeroizing;
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::target::{BodyFormat, TargetAddress, WebhookTarget};
use sshjobs_core::jobs::{Carrier, NotifyConfig, NotifyFormat};
use sshjobs_job::notify::{Delivery, DeliveryAttempt, Receiver, ReceiverKey};

/// Time limit for reading the files of a target.
const FILE_TIME: Duration = Duration::from_secs(5);

/// Sends deliveries to the targets of the configuration, and to URLs and commands that a person on this
/// machine has named.
pub struct Webhooks {
    config: Arc<NotifyConfig>,
    /// Whether URLs and commands that a person has named are those of this machine's user.
    has_local_outbox: bool,
}

impl Webhooks {
    /// For the targets of a configuration. Files with URLs and keys are read at each attempt.
    pub fn new(config: NotifyConfig) -> Self {
        Self {
            config: Arc::new(config),
            has_local_outbox: true,
        }
    }

    /// The same for an outbox that other machines share: a machine that can write to it must not run commands
    /// here.
    #[must_use]
    pub fn of_cluster(self) -> Self {
        Self {
            has_local_outbox: false,
            ..self
        }
    }
}

impl Carrier for Webhooks {
    fn knows(&self, receiver: &Receiver) -> bool {
        match receiver {
            Receiver::Target(name) => self.config.targets.contains_key(name),
            Receiver::Url(_) | Receiver::Command(_) => self.has_local_outbox,
        }
    }

    fn attempt(&self, delivery: Delivery) -> BoxFuture<'static, DeliveryAttempt> {
        let config = Arc::clone(&self.config);
        async move {
            let receiver = delivery.receiver.clone();
            // Files with URLs and keys may be on a slow disk.
            let finding = spawn_blocking(move || match &receiver {
                Receiver::Target(name) => configured(&config, name),
                Receiver::Url(url) => {
                    named_by_a_person(&config, TargetAddress::Url(url.as_str().into()))
                }
                Receiver::Command(command) => {
                    let words = ["/bin/sh", "-c", command].map(SecretString::from);
                    named_by_a_person(&config, TargetAddress::Command(words.into()))
                }
            });
            let found = match timeout(FILE_TIME, finding).await {
                Ok(Ok(found)) => found,
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("its files can't be read in time".to_owned()),
            };
            let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
            match found {
                Ok(target) => target.attempt(&delivery, now).await,
                Err(why) => DeliveryAttempt::Failed(why),
            }
        }
        .boxed()
    }
}

fn configured(config: &NotifyConfig, name: &str) -> Result<WebhookTarget, String> {
    // Only deliveries to known targets are claimed.
    let target = config.targets.get(name).ok_or("this process has no target with this name")?;
    let place = if let Some(url) = &target.url {
        TargetAddress::Url(url.as_str().into())
    } else if let Some(file) = &target.url_file {
        TargetAddress::Url(secret_in(file)?)
    } else {
        TargetAddress::Command(target.command.iter().map(|word| word.as_str().into()).collect())
    };
    Ok(WebhookTarget {
        place,
        format: match target.format {
            NotifyFormat::Json => BodyFormat::Json,
            NotifyFormat::Slack => BodyFormat::Slack,
        },
        key: target.signing_key_file.as_deref().map(key_in).transpose()?,
        allows_private: target.allow_private_addresses,
    })
}

/// A person who names an address of a private network means it.
fn named_by_a_person(config: &NotifyConfig, place: TargetAddress) -> Result<WebhookTarget, String> {
    let key = match &place {
        TargetAddress::Url(_) => config.signing_key_file.as_deref().map(key_in).transpose()?,
        TargetAddress::Command(_) => None,
    };
    Ok(WebhookTarget {
        place,
        format: BodyFormat::Json,
        key,
        allows_private: true,
    })
}

fn key_in(file: &Path) -> Result<ReceiverKey, String> {
    ReceiverKey::parse(&secret_in(file)?).map_err(|error| format!("{}: {error}", file.display()))
}

/// The text of a file, without the line feed at its end.
fn secret_in(file: &Path) -> Result<SecretString, String> {
    let text = std::fs::read_to_string(file).map(Zeroizing::new);
    let text = text.map_err(|error| format!("can't read {}: {error}", file.display()))?;
    Ok(text.trim_end().into())
}
