//! Cursors of readers that don't keep their own.

use std::collections::HashMap;
use std::sync::Mutex;

use super::caller::Caller;
use sshjobs_base::lock::lock;
use sshjobs_output::LineNo;

/// The cursors of a job's named readers, in memory. A store follows the same rules.
#[derive(Debug, Default)]
pub struct Cursors(Mutex<HashMap<CursorName, LineNo>>);

/// The name of a cursor.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CursorName {
    /// Owner of the cursor.
    pub caller: Caller,
    /// The caller's name for it.
    pub reader: String,
}

/// A requested move of a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CursorMove {
    /// Line at which the cursor must be now, if that matters.
    pub from: Option<LineNo>,
    /// Line after which it will be.
    pub to: LineNo,
}

/// Result of moving a cursor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// The cursor has moved.
    Done,
    /// The cursor was not at `from`: another call with the same name has moved it.
    WasElsewhere,
    /// The cursor is new, and the job has no room for more.
    NoRoom,
}

/// No room for another cursor of this job.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
#[error("this job already keeps the cursors of {MOST_CURSORS} readers")]
pub struct TooManyCursors;

/// Maximum cursors of one job.
pub(super) const MOST_CURSORS: usize = 64;

impl Cursors {
    /// The reader's cursor. A new reader starts before the first line.
    pub fn cursor(&self, name: &CursorName) -> LineNo {
        lock(&self.0).get(name).copied().unwrap_or(LineNo::START)
    }

    /// Moves a cursor.
    pub fn move_to(&self, name: &CursorName, step: CursorMove) -> Moved {
        let mut cursors = lock(&self.0);
        let known = cursors.get(name).copied();
        // Checked and moved under one lock: of two calls that start at one line, only one moves it.
        let moved = may_move(known, step, cursors.len());
        if moved == Moved::Done {
            cursors.insert(name.clone(), step.to);
        }
        moved
    }
}

/// Whether a cursor at `known` (`None` if it is new) may be moved, in a job with `count` cursors.
pub fn may_move(known: Option<LineNo>, step: CursorMove, count: usize) -> Moved {
    if known.is_none() && count >= MOST_CURSORS {
        return Moved::NoRoom;
    }
    match step.from {
        Some(from) if known.unwrap_or(LineNo::START) != from => Moved::WasElsewhere,
        Some(_) | None => Moved::Done,
    }
}
