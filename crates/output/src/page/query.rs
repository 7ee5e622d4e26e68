use crate::{LineNo, Render, Selection};

/// Which lines a page keeps if there are too many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keep {
    /// The oldest: the reader gets the others with its next read.
    #[default]
    First,
    /// The newest: the others are skipped and counted.
    Last,
}

/// A read request: the lines after a cursor, within a budget.
#[derive(Clone, Copy, Debug)]
pub struct PageQuery {
    /// The last line the reader has seen.
    pub cursor: LineNo,
    /// The selected streams.
    pub selection: Selection,
    /// Maximum lines to return; at least 1.
    pub max_lines: usize,
    /// Maximum bytes of rendered text to return, up to a line border. At least one line is
    /// returned, however long it is.
    pub max_bytes: usize,
    /// Bytes that a line costs in addition to its text.
    pub line_bytes: usize,
    /// How bytes become text.
    pub render: Render,
    /// Which lines are kept if these limits are exceeded.
    pub keep: Keep,
}

impl PageQuery {
    /// The lines of both streams after `cursor` in their clean view, at most 500 lines and 32 KiB
    /// of text, the oldest first.
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
