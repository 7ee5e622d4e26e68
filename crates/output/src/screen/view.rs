//! A screen at one moment, as data.

use crate::{StyledText, TerminalSize};

/// A screen at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScreenView {
    /// Size of the terminal.
    pub size: TerminalSize,
    /// All rows, from the top.
    pub rows: Vec<ScreenRow>,
    /// The cursor.
    pub cursor: Cursor,
    /// The window title that the program has set, without control characters. Empty if none.
    pub title: String,
    /// Whether the program has switched to the alternate screen, as full-screen programs do.
    pub is_alternate: bool,
    /// Grows with each byte of output and each resize. Two views of a job's screen with the same version show the same.
    pub version: u64,
    /// Whether the screen was computed from the whole output. Otherwise it may miss what was drawn
    /// before the kept output.
    pub is_from_start: bool,
}

/// A row of a screen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ScreenRow {
    /// Text of the row, without trailing spaces.
    pub text: String,
    /// The parts that are shown reversed, such as a selected item.
    pub reversed: Vec<ScreenSpan>,
    /// The parts whose colours differ from those of most of the row's text: a selected item, a key of a menu.
    pub highlighted: Vec<ScreenSpan>,
    /// The row in pieces of one style, with the spaces that have one.
    pub styled: Vec<StyledText>,
    /// Version of the screen in which the text or the marked parts of this row may have changed last.
    /// Colours alone do not count.
    pub changed_in: u64,
    /// Bytes of output up to that change.
    pub changed_at: u64,
    /// Version of the screen in which this row or its colours may have changed last.
    pub restyled_in: u64,
}

/// A part of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScreenSpan {
    /// First column of the part. The left one is 1.
    pub col: u32,
    /// Text of the part.
    pub text: String,
}

/// The cursor of a screen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    /// Row of the cursor. The top one is 1.
    pub row: u32,
    /// Column of the cursor. The left one is 1.
    pub col: u32,
    /// Whether the program shows it.
    pub is_visible: bool,
}
