//! A text that all replicas share, such as the list of tokens.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_nats::jetstream::kv;
use futures_util::TryStreamExt;
use tokio::task::JoinSet;
use tokio::time::sleep;

use super::connection::{NatsConnection, failed};
use super::entries;
use super::race::{RACE_PAUSE, lost_race};
use sshjobs_base::lock::lock;
use sshjobs_store::{SharedText, StoreError, Versioned};

/// A text in the bucket of settings. A task keeps a copy up to date, so that reading it takes no
/// call.
pub struct NatsText {
    connection: Arc<NatsConnection>,
    settings: kv::Store,
    name: &'static str,
    copy: Arc<Mutex<Versioned>>,
    /// The task. It ends with this value.
    _following: JoinSet<()>,
}

/// Pause before the text is followed again.
const PAUSE: Duration = Duration::from_millis(500);

impl NatsText {
    pub(super) fn open(
        connection: &Arc<NatsConnection>,
        name: &'static str,
    ) -> Result<Self, StoreError> {
        let opening = connection.until_ready(async || {
            let settings = connection.settings().await?;
            let copy = read(&settings, name).await?;
            Ok((settings, copy))
        });
        let (settings, copy) = connection.wait(opening)?;
        let copy = Arc::new(Mutex::new(copy));
        let mut following = JoinSet::new();
        let task = follow(settings.clone(), name, Arc::clone(&copy));
        following.spawn_on(task, connection.handle());
        Ok(Self {
            connection: Arc::clone(connection),
            settings,
            name,
            copy,
            _following: following,
        })
    }
}

impl SharedText for NatsText {
    fn read(&self) -> Versioned {
        lock(&self.copy).clone()
    }

    fn refresh(&self) -> Result<(), StoreError> {
        let read = self.connection.wait(read(&self.settings, self.name))?;
        let mut copy = lock(&self.copy);
        if read.version > copy.version {
            *copy = read;
        }
        Ok(())
    }

    fn replace(&self, text: &str, version: u64) -> Result<bool, StoreError> {
        let value = bytes::Bytes::copy_from_slice(text.as_bytes());
        // Version 0 is that of a missing text.
        let written = self.connection.wait(async {
            match self.settings.update(self.name, value, version).await {
                Ok(version) => Ok(Some(version)),
                Err(error) if lost_race(&error) => {
                    sleep(RACE_PAUSE).await;
                    Ok(None)
                }
                Err(error) => Err(failed(error)),
            }
        })?;
        match written {
            Some(version) => {
                *lock(&self.copy) = Versioned {
                    text: text.to_owned(),
                    version,
                };
                Ok(true)
            }
            None => {
                self.refresh()?;
                Ok(false)
            }
        }
    }
}

async fn read(settings: &kv::Store, name: &str) -> Result<Versioned, StoreError> {
    let entry = entries::exact(settings, name).await?;
    Ok(entry.map_or_else(Versioned::default, |entry| {
        versioned(&entry.value, entry.revision)
    }))
}

fn versioned(text: &[u8], version: u64) -> Versioned {
    Versioned {
        text: String::from_utf8_lossy(text).into_owned(),
        version,
    }
}

/// Keeps the copy up to date until it is dropped.
async fn follow(settings: kv::Store, name: &'static str, copy: Arc<Mutex<Versioned>>) {
    loop {
        if let Err(error) = follow_once(&settings, name, &copy).await {
            tracing::warn!(%error, name, "a shared text can't be followed");
        }
        sleep(PAUSE).await;
    }
}

async fn follow_once(
    settings: &kv::Store,
    name: &str,
    copy: &Mutex<Versioned>,
) -> Result<(), StoreError> {
    let mut changes = settings.watch_with_history(name).await.map_err(failed)?;
    while let Some(entry) = changes.try_next().await.map_err(failed)? {
        let mut copy = lock(copy);
        if entry.revision > copy.version {
            *copy = versioned(&entry.value, entry.revision);
        }
    }
    Ok(())
}
