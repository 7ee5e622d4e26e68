use super::scan::Walk;
use super::{Keep, Line, LineNo, Looked, Render, Ring, Scan, Selection, Stream, Timestamp};

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
    /// Which lines are kept when there are more than these bounds allow.
    pub keep: Keep,
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

    /// What showing it costs. What was mostly escape sequences costs something as well: they had to be looked at.
    pub(super) fn cost(&self, raw: &Line<'_>) -> usize {
        self.text.len().max(raw.text.len() / RAW_FOR_ONE)
    }

    /// Takes what the line and what is around it cost from a budget of bytes; false, and nothing is left of it, when it does not
    /// suffice.
    pub(super) fn spend(&self, raw: &Line<'_>, around: usize, budget: &mut usize) -> bool {
        let left = budget.checked_sub(self.cost(raw) + around);
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
    /// How many lines between the cursor and `last_line_no` are gone.
    pub dropped_lines: u64,
    /// How many lines between them are kept, and not here.
    pub skipped_lines: u64,
    /// The cursor for the next read: the last line here, or the last that was skipped or is gone, so that each is counted once.
    pub last_line_no: LineNo,
    /// Whether more lines of the selection are there already.
    pub has_more: bool,
}

impl Page {
    /// Reads a page.
    pub fn read(ring: &Ring, query: &PageQuery) -> Self {
        match query.keep {
            Keep::First => Self::first(ring, query),
            Keep::Last => Self::last(ring, query),
        }
    }

    /// The oldest lines, without the detour over a [`Scan`]: most reads are this one.
    fn first(ring: &Ring, query: &PageQuery) -> Self {
        let mut walk = Walk::new(query.cursor, query.selection);
        let (mut page, mut budget) = (Self::default(), query.max_bytes);
        for line in ring.lines_after(query.cursor, query.selection) {
            let rendered = PageLine::of(&line, query.render);
            let full =
                page.lines.len() >= query.max_lines || !rendered.spend(&line, query.line_bytes, &mut budget);
            if full && !page.lines.is_empty() {
                page.has_more = true;
                break;
            }
            walk.pass_line(line.line_no, walk.gone_before(ring, line.line_no));
            page.lines.push(rendered);
        }
        if !page.has_more {
            walk.pass_the_gone(ring);
        }
        Self { dropped_lines: walk.dropped, last_line_no: walk.cursor, ..page }
    }

    fn last(ring: &Ring, query: &PageQuery) -> Self {
        let mut scan = Scan::new(*query, false);
        while let Some(piece) = scan.fetch(ring) {
            for fetched in piece {
                if !scan.take(fetched, Looked::PLAIN) {
                    break;
                }
            }
        }
        scan.take_page(ring)
    }
}
