use std::collections::HashMap;
use std::sync::Mutex;

use super::Caller;
use crate::lock::lock;
use crate::output::LineNo;

/// The cursors of readers that keep none themselves, by name.
#[derive(Debug, Default)]
pub struct Cursors(Mutex<HashMap<CursorName, LineNo>>);

/// The name under which a caller has a cursor kept.
pub type CursorName = (Caller, String);

/// As many readers as may have their cursor kept for one job do.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("{MOST_CURSORS} readers have their cursors kept for this job already")]
pub struct TooManyCursors;

const MOST_CURSORS: usize = 64;

impl Cursors {
    /// How far the reader has come. A new one stands before the first line, if there is room for it.
    pub fn cursor(&self, name: &CursorName) -> Result<LineNo, TooManyCursors> {
        self.change(name, |cursor| *cursor)
    }

    /// Moves the reader from where it stood to where it stands now; false when another call with its name was faster.
    pub fn advance(&self, name: &CursorName, from: LineNo, to: LineNo) -> Result<bool, TooManyCursors> {
        self.change(name, |cursor| {
            let is_ours = *cursor == from;
            if is_ours {
                *cursor = to;
            }
            is_ours
        })
    }

    /// Puts the reader somewhere else.
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
