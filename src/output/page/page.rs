use crate::output::{LineNo, PageLine};

/// The answer to a [`PageQuery`](crate::output::PageQuery).
///
/// The same query gives the same page until eviction: reading changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The lines, by number.
    pub lines: Vec<PageLine>,
    /// Lines between the cursor and `last_line_no` that are gone.
    pub dropped_lines: u64,
    /// Lines between them that are kept but not returned.
    pub skipped_lines: u64,
    /// The cursor for the next read: the last line here, or the last that was skipped or is gone, so that each is counted once.
    pub last_line_no: LineNo,
    /// Whether more lines of the selection are there already.
    pub has_more: bool,
}
