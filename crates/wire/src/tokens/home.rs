//! Where the list of tokens is kept, and how it is written.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::TokenEntry;
use super::error::TokensError;

/// Where the list of tokens is kept.
pub(super) trait Home: Send + Sync {
    /// All tokens, including expired ones, in the order of creation.
    fn list(&self) -> Result<Arc<[TokenEntry]>, TokensError>;

    /// All tokens, if they are known without waiting for a network or a network disk.
    fn list_at_once(&self) -> Option<Arc<[TokenEntry]>>;

    /// Reads the list again, past any copy. Blocking.
    fn refresh(&self) {}

    /// Changes the list. Of two changes at once, the second one is made to the list that the first
    /// has left; `change` may be called again for that.
    fn change(&self, change: Change<'_>) -> Result<(), TokensError>;
}

/// A change of the list of tokens.
pub(super) type Change<'a> = &'a dyn Fn(&mut Vec<TokenEntry>) -> Result<(), TokensError>;

/// The list as it is written.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Contents {
    pub(super) tokens: Vec<TokenEntry>,
}
