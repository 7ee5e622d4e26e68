use std::collections::HashMap;
use std::sync::Mutex;

use super::Caller;
use crate::lock::lock;
use crate::output::LineNo;

/// The cursors of readers that keep none themselves, by name.
#[derive(Debug, Default)]
pub struct Cursors(Mutex<HashMap<CursorName, LineNo>>);

/// The name of a cursor: its caller's, and its own.
pub type CursorName = (Caller, String);

/// No more cursors are kept for this job.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{MOST_CURSORS} readers have their cursors kept for this job already")]
pub struct TooManyCursors;

const MOST_CURSORS: usize = 64;

impl Cursors {
    /// The reader's cursor. That of a new reader is before the first line, if there is room for it.
    pub fn cursor(&self, name: &CursorName) -> Result<LineNo, TooManyCursors> {
        self.change(name, |cursor| *cursor)
    }

    /// Moves the cursor from one line to another; false when another call of the same name has moved it meanwhile.
    pub fn advance(&self, name: &CursorName, from: LineNo, to: LineNo) -> Result<bool, TooManyCursors> {
        self.change(name, |cursor| {
            let is_ours = *cursor == from;
            if is_ours {
                *cursor = to;
            }
            is_ours
        })
    }

    /// Sets the cursor.
    pub fn put(&self, name: &CursorName, cursor: LineNo) -> Result<(), TooManyCursors> {
        self.change(name, |known| *known = cursor)
    }

    fn change<T>(
        &self,
        name: &CursorName,
        change: impl FnOnce(&mut LineNo) -> T,
    ) -> Result<T, TooManyCursors> {
        let mut cursors = lock(&self.0);
        if cursors.len() >= MOST_CURSORS && !cursors.contains_key(name) {
            return Err(TooManyCursors);
        }
        Ok(change(cursors.entry(name.clone()).or_insert(LineNo::START)))
    }
}
