use super::walk::Walk;
use super::{Keep, Line, LineMatch, Page, PageQuery, Scan};
use crate::Budget;
use crate::ring::Ring;

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
            let rendered = Line::of(&line, query.render);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ring::RingLimits;
    use crate::{LineNo, Stream};

    fn ring() -> Ring {
        let mut ring = Ring::new(RingLimits::default());
        for number in 1..=5 {
            ring.append(Stream::Stdout, format!("line {number}\n").as_bytes(), 0);
        }
        ring
    }

    fn numbers(page: &Page) -> Vec<u64> {
        page.lines.iter().map(|line| line.line_no.value()).collect()
    }

    #[test]
    fn a_page_has_the_oldest_or_the_newest_lines() {
        let query = PageQuery {
            max_lines: 2,
            ..PageQuery::after(LineNo::START)
        };
        let oldest = Page::read(&ring(), &query);
        assert_eq!(numbers(&oldest), [1, 2]);
        assert_eq!((oldest.last_line_no.value(), oldest.has_more), (2, true));

        let last = PageQuery {
            keep: Keep::Last,
            ..query
        };
        let newest = Page::read(&ring(), &last);
        assert_eq!(numbers(&newest), [4, 5]);
        assert_eq!((newest.skipped_lines, newest.has_more), (3, false));

        let rest = PageQuery {
            cursor: LineNo::new(3),
            max_lines: 9,
            ..query
        };
        let rest = Page::read(&ring(), &rest);
        assert_eq!(numbers(&rest), [4, 5]);
        assert!(!rest.has_more);
    }

    #[test]
    fn a_page_fits_into_its_bytes_but_for_its_first_line() {
        let query = PageQuery {
            line_bytes: 10,
            ..PageQuery::after(LineNo::START)
        };
        let cost = "line 1".len() + query.line_bytes;
        for (max_bytes, expected) in [(2 * cost, 2), (3 * cost - 1, 2), (cost - 1, 1)] {
            let page = Page::read(&ring(), &PageQuery { max_bytes, ..query });
            assert_eq!(page.lines.len(), expected, "{max_bytes} bytes");
            assert!(page.has_more);
        }
    }
}
