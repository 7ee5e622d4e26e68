use super::walk::Walk;
use super::{Keep, LineMatch, Page, PageLine, PageQuery, Scan};
use crate::output::Budget;
use crate::output::ring::Ring;

impl Page {
    /// Reads a page.
    pub fn read(ring: &Ring, query: &PageQuery) -> Self {
        match query.keep {
            Keep::First => Self::first(ring, query),
            Keep::Last => Self::last(ring, query),
        }
    }

    /// The oldest lines, without a [`Scan`]: the most frequent read.
    fn first(ring: &Ring, query: &PageQuery) -> Self {
        let mut walk = Walk::new(query.cursor, query.selection);
        let mut page = Self::default();
        let mut budget = Budget::new(query.max_bytes);
        for line in ring.lines_after(query.cursor, query.selection) {
            let rendered = PageLine::of(&line, query.render);
            let full = page.lines.len() >= query.max_lines
                || !budget.spend(rendered.cost(&line) + query.line_bytes);
            // The first line always fits. Otherwise the reader could never get past it.
            if full && !page.lines.is_empty() {
                page.has_more = true;
                break;
            }
            walk.pass_line(line.line_no, walk.gone_before(ring, line.line_no));
            page.lines.push(rendered);
        }
        // With more lines, the next read counts the evicted ones before them.
        if !page.has_more {
            walk.pass_the_gone(ring);
        }
        Self {
            dropped_lines: walk.dropped,
            last_line_no: walk.cursor,
            ..page
        }
    }

    fn last(ring: &Ring, query: &PageQuery) -> Self {
        let mut scan = Scan::new(*query, false);
        while let Some(piece) = scan.fetch(ring) {
            for fetched in piece {
                if !scan.take(fetched, LineMatch::PLAIN) {
                    break;
                }
            }
        }
        scan.take_page(ring)
    }
}
