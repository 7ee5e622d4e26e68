//! The list of tokens that all replicas of a cluster share.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::TokenEntry;
use super::error::TokensError;
use super::home::{Change, Contents, Home};
use sshjobs_base::lock::lock;
use sshjobs_core::jobs::SharedText;

/// The list of tokens of a cluster. Every replica sees a change within a second.
pub(super) struct SharedTokens {
    text: Box<dyn SharedText>,
    read: Mutex<Option<Read>>,
    /// Time of the last [`refresh`](Home::refresh).
    refreshed_at: Mutex<Option<Instant>>,
}

/// Least time between two refreshes: clients with wrong tokens must not flood NATS.
const REFRESH_INTERVAL: Duration = Duration::from_millis(200);

/// The tokens of a version of the text.
struct Read {
    version: u64,
    entries: Arc<[TokenEntry]>,
}

impl SharedTokens {
    pub(super) fn new(text: Box<dyn SharedText>) -> Self {
        Self {
            text,
            read: Mutex::default(),
            refreshed_at: Mutex::default(),
        }
    }

    fn read(&self) -> Result<Read, TokensError> {
        let now = self.text.read();
        if let Some(read) = lock(&self.read).as_ref()
            && read.version == now.version
        {
            return Ok(Read {
                version: read.version,
                entries: Arc::clone(&read.entries),
            });
        }
        let contents = if now.version == 0 {
            Contents::default()
        } else {
            serde_json::from_str(&now.text).map_err(TokensError::DamagedInCluster)?
        };
        let entries: Arc<[TokenEntry]> = contents.tokens.into();
        *lock(&self.read) = Some(Read {
            version: now.version,
            entries: Arc::clone(&entries),
        });
        Ok(Read {
            version: now.version,
            entries,
        })
    }
}

impl Home for SharedTokens {
    fn list(&self) -> Result<Arc<[TokenEntry]>, TokensError> {
        Ok(self.read()?.entries)
    }

    fn list_at_once(&self) -> Option<Arc<[TokenEntry]>> {
        // The text is kept in memory, by a watch.
        Some(self.read().ok()?.entries)
    }

    fn refresh(&self) {
        {
            let mut refreshed_at = lock(&self.refreshed_at);
            if refreshed_at.is_some_and(|at| at.elapsed() < REFRESH_INTERVAL) {
                return;
            }
            *refreshed_at = Some(Instant::now());
        }
        if let Err(error) = self.text.refresh() {
            tracing::debug!(%error, "the list of tokens can't be read again");
        }
    }

    fn change(&self, change: Change<'_>) -> Result<(), TokensError> {
        loop {
            let Read { version, entries } = self.read()?;
            let mut tokens = entries.to_vec();
            change(&mut tokens)?;
            let text = serde_json::to_string(&Contents { tokens })
                .map_err(TokensError::DamagedInCluster)?;
            if self.text.replace(&text, version).map_err(TokensError::Cluster)? {
                return Ok(());
            }
            // Another machine has changed the list: the change is made to its list.
        }
    }
}
