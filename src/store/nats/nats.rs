//! The handle of a connection to NATS.

use std::sync::Arc;

use super::connection::Connection;
use super::options::NatsOptions;
use super::shared_text::NatsText;
use crate::store::StoreError;

/// A connection to NATS. A cheap handle: clones share it.
#[derive(Clone)]
pub struct Nats(pub(super) Arc<Connection>);

impl Nats {
    /// Connects. Blocks the thread, at most for ten seconds.
    ///
    /// # Errors
    /// [`StoreError::Nats`] if NATS can't be reached or refuses the login.
    pub fn connect(options: &NatsOptions) -> Result<Self, StoreError> {
        Connection::open(options).map(|connection| Self(Arc::new(connection)))
    }

    /// A text that all replicas share. Blocks the thread.
    ///
    /// # Errors
    /// [`StoreError::Nats`].
    pub fn shared_text(&self, name: &'static str) -> Result<NatsText, StoreError> {
        NatsText::open(&self.0, name)
    }
}

impl std::fmt::Debug for Nats {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Nats").finish_non_exhaustive()
    }
}
