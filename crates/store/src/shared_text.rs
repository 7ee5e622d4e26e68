//! A text that several machines share and replace as a whole.

use super::StoreError;

/// A text with its version.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versioned {
    /// The text. Empty if there is none.
    pub text: String,
    /// Differs after every change. 0 if there is no text.
    pub version: u64,
}

/// A text that several machines share.
pub trait SharedText: Send + Sync {
    /// The text, at most a second after it has changed. Does not block.
    fn read(&self) -> Versioned;

    /// Reads the text now, because a newer one may be there. Blocking.
    ///
    /// # Errors
    /// If the text can't be read.
    fn refresh(&self) -> Result<(), StoreError>;

    /// Replaces the text, if it still has this version. Returns false if another machine was faster:
    /// then the next [`read`](Self::read) returns its text. Blocking.
    ///
    /// # Errors
    /// If the text can't be stored.
    fn replace(&self, text: &str, version: u64) -> Result<bool, StoreError>;
}
