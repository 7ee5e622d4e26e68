use crate::output::{LineNo, Render, Selection};

/// Which lines a page keeps when there are more than it may hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// The oldest: the reader comes back for the others.
    #[default]
    First,
    /// The newest: the others are skipped, and counted.
    Last,
}

/// What a reader asks for: the lines behind a cursor, within a budget.
#[derive(Clone, Copy, Debug)]
pub struct PageQuery {
    /// The last line the reader has seen.
    pub cursor: LineNo,
    /// The streams it wants.
    pub selection: Selection,
    /// Most lines to return; at least 1.
    pub max_lines: usize,
    /// Most bytes of rendered text to return, ended on a line border. One line is returned however long it is.
    pub max_bytes: usize,
    /// Bytes that a line costs besides its text.
    pub line_bytes: usize,
    /// How bytes become text.
    pub render: Render,
    /// Which lines are kept when there are more than these bounds allow.
    pub keep: Keep,
}

impl PageQuery {
    /// The lines of both streams behind `cursor` in their clean view, 500 of them and 32 KiB of text at most, the oldest first.
    pub const fn after(cursor: LineNo) -> Self {
        Self {
            cursor,
            selection: Selection::Both,
            max_lines: 500,
            max_bytes: 32 << 10,
            line_bytes: 1,
            render: Render::Clean,
            keep: Keep::First,
        }
    }
}
