use super::{Line, LineNo, Render, Ring, Selection, Stream, Timestamp};

/// What a reader asks for: the lines behind a cursor, within a budget.
#[derive(Clone, Copy, Debug)]
pub struct PageQuery {
    /// The last line the reader has seen.
    pub cursor: LineNo,
    /// The streams it wants.
    pub selection: Selection,
    /// How many lines at most; at least 1.
    pub max_lines: usize,
    /// How many bytes of rendered text at most, ended on a line border. One line is returned however long it is.
    pub max_bytes: usize,
    /// How many bytes a line costs besides its text.
    pub line_bytes: usize,
    /// How bytes become text.
    pub render: Render,
}

/// One line, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLine {
    /// Its number.
    pub line_no: LineNo,
    /// The stream it came on.
    pub stream: Stream,
    /// When its end arrived.
    pub at: Timestamp,
    /// Whether it continues an over-long line.
    pub continuation: bool,
    /// Its rendered text.
    pub text: String,
}

/// So many bytes that show nothing cost as much as one that is shown.
const RAW_FOR_ONE: usize = 16;

impl PageLine {
    /// Renders a line.
    pub(super) fn of(line: &Line<'_>, render: Render) -> Self {
        Self {
            line_no: line.line_no,
            stream: line.stream,
            at: line.at,
            continuation: line.continuation,
            text: line.render(render).into_owned(),
        }
    }

    /// Takes what the line and what is around it cost from a budget of bytes; false, and nothing is left of it, when it does not
    /// suffice. What was mostly escape sequences costs something as well: they had to be looked at.
    pub(super) fn spend(&self, raw: &Line<'_>, around: usize, budget: &mut usize) -> bool {
        let left = budget.checked_sub(self.text.len().max(raw.text.len() / RAW_FOR_ONE) + around);
        *budget = left.unwrap_or(0);
        left.is_some()
    }
}

/// The answer to a [`PageQuery`].
///
/// The same query gives the same page until eviction: reading changes nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Page {
    /// The lines, by number.
    pub lines: Vec<PageLine>,
    /// How many lines between the cursor and the first line here are gone.
    pub dropped_lines: u64,
    /// The last of them.
    pub dropped_until: LineNo,
    /// Whether more lines of the selection are there already.
    pub has_more: bool,
}

impl Page {
    /// Reads a page.
    pub fn read(ring: &Ring, query: &PageQuery) -> Self {
        let (dropped_lines, dropped_until) = ring.dropped_after(query.cursor, query.selection);
        let mut page = Self { dropped_lines, dropped_until, ..Self::default() };
        let mut budget = query.max_bytes;
        for line in ring.lines_after(query.cursor, query.selection) {
            let rendered = PageLine::of(&line, query.render);
            let full =
                page.lines.len() >= query.max_lines || !rendered.spend(&line, query.line_bytes, &mut budget);
            if full && !page.lines.is_empty() {
                page.has_more = true;
                break;
            }
            page.lines.push(rendered);
        }
        page
    }

    /// The cursor for the next read: the last line here. Without one it is `cursor`, or the last of the lines that are gone,
    /// so that they are counted once.
    pub fn last_line_no(&self, cursor: LineNo) -> LineNo {
        match self.lines.last() {
            Some(line) => line.line_no,
            None if self.dropped_lines > 0 => self.dropped_until.max(cursor),
            None => cursor,
        }
    }
}
