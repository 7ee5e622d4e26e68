use super::Line;
use crate::LineNo;

/// The answer to a [`PageQuery`](crate::PageQuery).
///
/// The same query gives the same page until eviction: reading changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The lines, by number.
    pub lines: Vec<Line>,
    /// Number of evicted lines between the cursor and `last_line_no`.
    pub dropped_lines: u64,
    /// Number of lines between them that are kept and not returned.
    pub skipped_lines: u64,
    /// The cursor for the next read: the last line that was returned, skipped or counted as
    /// evicted, so that each line is counted once.
    pub last_line_no: LineNo,
    /// Whether more lines of the selection are available already.
    pub has_more: bool,
}
