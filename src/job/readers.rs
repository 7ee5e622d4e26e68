use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::output::LineNo;

/// The cursors of readers that keep none themselves, by name.
#[derive(Debug, Default)]
pub struct Readers(Mutex<HashMap<String, LineNo>>);

/// As many readers as may have their cursor kept for one job do.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("{MOST_READERS} readers have their cursors kept for this job already")]
pub struct TooManyReaders;

const MOST_READERS: usize = 64;

impl Readers {
    /// How far the reader has come. A new one stands before the first line, if there is room for it.
    pub fn cursor(&self, name: &str) -> Result<LineNo, TooManyReaders> {
        self.change(name, |cursor| *cursor)
    }

    /// Moves the reader from where it stood to where it stands now; false when another call with its name was faster.
    pub fn advance(&self, name: &str, from: LineNo, to: LineNo) -> Result<bool, TooManyReaders> {
        self.change(name, |cursor| {
            let is_ours = *cursor == from;
            if is_ours {
                *cursor = to;
            }
            is_ours
        })
    }

    /// Puts the reader somewhere else.
    pub fn put(&self, name: &str, cursor: LineNo) -> Result<(), TooManyReaders> {
        self.change(name, |known| *known = cursor)
    }

    fn change<T>(&self, name: &str, change: impl FnOnce(&mut LineNo) -> T) -> Result<T, TooManyReaders> {
        let mut cursors = self.cursors();
        if cursors.len() >= MOST_READERS && !cursors.contains_key(name) {
            return Err(TooManyReaders);
        }
        Ok(change(cursors.entry(name.to_owned()).or_insert(LineNo::START)))
    }

    /// A panic elsewhere leaves the map whole, since each change is a single call.
    fn cursors(&self) -> MutexGuard<'_, HashMap<String, LineNo>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
