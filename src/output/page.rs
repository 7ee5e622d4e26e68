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

    /// Takes what the line and its end cost from a budget of bytes; false, and nothing is left of it, when it does not
    /// suffice. What was mostly escape sequences costs something as well: they had to be looked at.
    pub(super) fn spend(&self, raw: &Line<'_>, budget: &mut usize) -> bool {
        let left = budget.checked_sub(self.text.len().max(raw.text.len() / RAW_FOR_ONE) + 1);
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
    /// How many lines between the cursor and the first line here were evicted, whatever their stream.
    pub dropped_lines: u64,
    /// Whether more lines of the selection are there already.
    pub has_more: bool,
}

impl Page {
    /// Reads a page.
    pub fn read(ring: &Ring, query: &PageQuery) -> Self {
        let mut page = Self { dropped_lines: ring.dropped_after(query.cursor), ..Self::default() };
        let mut budget = query.max_bytes;
        for line in ring.lines_after(query.cursor, query.selection) {
            let rendered = PageLine::of(&line, query.render);
            let full = page.lines.len() >= query.max_lines || !rendered.spend(&line, &mut budget);
            if full && !page.lines.is_empty() {
                page.has_more = true;
                break;
            }
            page.lines.push(rendered);
        }
        page
    }

    /// The cursor for the next read: the last line here, or `cursor` when there is none.
    pub fn last_line_no(&self, cursor: LineNo) -> LineNo {
        self.lines.last().map_or(cursor, |line| line.line_no)
    }
}
