//! Reads a page in bounded pieces while a caller matches the lines.

use std::collections::VecDeque;

use super::walk::Walk;
use super::{Fetched, Keep, Page, PageQuery};
use crate::ring::Ring;
use crate::{LineNo, Measure, Selection};

/// Result of matching a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LineMatch {
    /// Whether the line is one of the wanted lines.
    pub is_wanted: bool,
    /// Whether the line is the one that was waited for.
    pub is_last: bool,
}

impl LineMatch {
    /// The result without a pattern.
    pub const PLAIN: Self = Self {
        is_wanted: true,
        is_last: false,
    };
}

/// A page that is read from a cursor in bounded pieces, so that lines can be matched without
/// blocking the writer.
#[derive(Clone, Debug)]
pub struct Scan {
    query: PageQuery,
    /// Whether every line must be matched, so that none may be skipped.
    looks: bool,
    walk: Walk,
    kept: VecDeque<Fetched>,
    /// Cost of the kept lines.
    cost: usize,
    skipped: u64,
    full: bool,
    last: Option<LineNo>,
}

impl Scan {
    /// A new scan. If it `looks`, it skips no line, because its caller matches each of them.
    pub fn new(query: PageQuery, looks: bool) -> Self {
        let walk = Walk::new(query.cursor, query.selection);
        Self {
            query,
            looks,
            walk,
            kept: VecDeque::new(),
            cost: 0,
            skipped: 0,
            full: false,
            last: None,
        }
    }

    /// The next lines to match. `None` if all were taken, or no more are wanted.
    pub fn fetch(&mut self, ring: &Ring) -> Option<Vec<Fetched>> {
        if self.is_over() {
            return None;
        }
        if self.query.keep == Keep::Last && !self.looks {
            self.skip_ahead(ring);
        }
        let most = match self.query.keep {
            // One more line shows whether there is more.
            Keep::First if !self.looks => self.query.max_lines - self.kept.len() + 1,
            // A line may not match, or a newer one may replace it, so no count is enough.
            Keep::First | Keep::Last => usize::MAX,
        };
        let piece = self.walk.peek(ring, most, self.query.render);
        if piece.is_empty() {
            // Only here, where no kept line follows: it counts all numbers up to the newest.
            self.walk.pass_the_gone(ring);
            return None;
        }
        Some(piece)
    }

    /// Skips lines that would not be kept, without reading them.
    fn skip_ahead(&mut self, ring: &Ring) {
        let extent = |line_no| ring.extent(line_no, self.query.selection, Measure::Lines);
        let newest = ring.newest();
        // The search below finds the last line that is followed by `max_lines` selected lines.
        let target = extent(newest).saturating_sub(self.query.max_lines as u64);
        let mut before = self.walk.cursor.value();
        let mut behind = newest.value() + 1;
        while behind.saturating_sub(before) > 1 {
            let middle = before + (behind - before) / 2;
            if extent(LineNo::new(middle)) <= target {
                before = middle
            } else {
                behind = middle
            }
        }
        let from = self.walk.cursor;
        let to = LineNo::new(before);
        // Lines between that are kept count as skipped, the others as dropped.
        let skipped = extent(to).saturating_sub(extent(from));
        let gone = match self.query.selection {
            Selection::Both => to.since(from) - skipped,
            Selection::Only(_) => ring.dropped_after(from, self.query.selection).0,
        };
        // If no kept line is skipped, `peek` counts the evicted ones before the next line.
        if skipped > 0 {
            self.walk.dropped += gone;
            self.walk.cursor = to;
            // `max_lines` lines follow `to`, so no line that was taken before can stay.
            self.skipped += skipped + self.kept.drain(..).count() as u64;
            self.cost = 0;
        }
    }

    /// Adds a line with its match. Returns false if no more are wanted. Lines must come in the
    /// order of `fetch`.
    pub fn take(&mut self, fetched: Fetched, looked: LineMatch) -> bool {
        let wanted = looked.is_wanted || looked.is_last;
        let cost = fetched.cost + self.query.line_bytes;
        let fits =
            self.kept.len() < self.query.max_lines && self.cost + cost <= self.query.max_bytes;
        // Returns before `pass`, so that the next read starts with this line.
        if wanted && self.query.keep == Keep::First && !fits && !self.kept.is_empty() {
            self.full = true;
            return false;
        }
        self.walk.pass(&fetched);
        if looked.is_last {
            self.last = Some(fetched.line.line_no);
        }
        if wanted {
            self.cost += cost;
            self.kept.push_back(fetched);
            // Drops nothing for `Keep::First`: the line fits, or is the only one.
            self.drop_oldest();
        } else {
            self.skipped += 1;
        }
        !looked.is_last
    }

    fn drop_oldest(&mut self) {
        let lines = self.query.max_lines;
        let bytes = self.query.max_bytes;
        while self.kept.len() > lines || (self.cost > bytes && self.kept.len() > 1) {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.cost -= oldest.cost + self.query.line_bytes;
            self.skipped += 1;
        }
    }

    /// Whether no more lines are wanted.
    pub fn is_over(&self) -> bool {
        self.full || self.last.is_some()
    }

    /// The line that was waited for, if it was found.
    pub fn last(&self) -> Option<LineNo> {
        self.last
    }

    /// Whether there is a line to show.
    pub fn has_lines(&self) -> bool {
        !self.kept.is_empty()
    }

    /// The current position.
    pub fn cursor(&self) -> LineNo {
        self.walk.cursor
    }

    /// Whether there are lines after the current position.
    pub fn has_more(&self, ring: &Ring) -> bool {
        ring.lines_after(self.walk.cursor, self.query.selection).next().is_some()
    }

    /// Returns the page.
    pub fn take_page(&mut self, ring: &Ring) -> Page {
        Page {
            lines: self.kept.drain(..).map(|fetched| fetched.line).collect(),
            dropped_lines: self.walk.dropped,
            skipped_lines: self.skipped,
            last_line_no: self.walk.cursor,
            has_more: self.has_more(ring),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Stream;
    use crate::ring::RingLimits;

    fn query(keep: Keep, max_lines: usize, selection: Selection) -> PageQuery {
        PageQuery {
            cursor: LineNo::START,
            selection,
            max_lines,
            max_bytes: 1 << 20,
            line_bytes: 1,
            render: crate::Render::Raw,
            keep,
        }
    }

    /// Reads a page of the lines that contain `wanted`, up to the first that contains `last`.
    fn scan(ring: &Ring, query: PageQuery, wanted: &str, last: Option<&str>) -> Page {
        let mut scan = Scan::new(query, !wanted.is_empty() || last.is_some());
        while let Some(piece) = scan.fetch(ring) {
            for fetched in piece {
                let text = &fetched.line.text;
                let looked = LineMatch {
                    is_wanted: text.contains(wanted),
                    is_last: last.is_some_and(|last| text.contains(last)),
                };
                if !scan.take(fetched, looked) {
                    break;
                }
            }
        }
        scan.take_page(ring)
    }

    fn numbers(page: &Page) -> Vec<u64> {
        page.lines.iter().map(|line| line.line_no.value()).collect()
    }

    fn ring(lines: u64) -> Ring {
        let mut ring = Ring::new(RingLimits {
            lines: 1 << 20,
            ..RingLimits::default()
        });
        for number in 1..=lines {
            ring.append(Stream::Stdout, format!("line {number}\n").as_bytes(), 0);
        }
        ring
    }

    #[test]
    fn the_last_lines_are_kept_and_those_before_them_counted() {
        let ring = ring(9000);
        let page = scan(
            &ring,
            query(Keep::Last, 10, Selection::Both),
            "",
            Some("line 8000"),
        );
        assert_eq!(numbers(&page), (7991..=8000).collect::<Vec<_>>());
        assert_eq!(
            (page.skipped_lines, page.last_line_no.value(), page.has_more),
            (7990, 8000, true)
        );
        let newest = scan(&ring, query(Keep::Last, 10, Selection::Both), "", None);
        assert_eq!(numbers(&newest), (8991..=9000).collect::<Vec<_>>());
        assert_eq!(
            (
                newest.skipped_lines,
                newest.last_line_no.value(),
                newest.has_more
            ),
            (8990, 9000, false)
        );
    }

    #[test]
    fn only_lines_that_may_be_kept_are_read() {
        let ring = ring(9000);
        let mut newest = Scan::new(query(Keep::Last, 10, Selection::Both), false);
        let piece = newest.fetch(&ring).unwrap();
        assert_eq!(piece[0].line.line_no.value(), 8991);
        assert_eq!(newest.cursor().value(), 8990);

        let mut oldest = Scan::new(query(Keep::First, 3, Selection::Both), false);
        let piece = oldest.fetch(&ring).unwrap();
        assert_eq!(piece.len(), 4, "one more shows that there is more");
        for fetched in piece.into_iter().take(2) {
            oldest.take(fetched, LineMatch::PLAIN);
        }
        assert_eq!(oldest.fetch(&ring).unwrap().len(), 2);
    }

    #[test]
    fn the_last_lines_fit_into_the_bytes() {
        let ring = ring(9);
        let all = query(Keep::Last, 9, Selection::Both);
        let cost = Scan::new(all, false).fetch(&ring).unwrap()[0].cost + all.line_bytes;
        for (max_bytes, expected) in [(3 * cost, 3), (4 * cost - 1, 3), (cost - 1, 1)] {
            let page = scan(&ring, PageQuery { max_bytes, ..all }, "", None);
            assert_eq!(page.lines.len(), expected, "{max_bytes} bytes");
            assert_eq!(page.skipped_lines, 9 - expected as u64);
        }
    }

    #[test]
    fn a_scan_tells_what_it_has_found() {
        let ring = ring(3);
        let mut scan = Scan::new(query(Keep::First, 9, Selection::Both), true);
        assert!(!scan.has_lines() && scan.last().is_none());
        let piece = scan.fetch(&ring).unwrap();
        for (fetched, is_last) in piece.into_iter().zip([false, true]) {
            let is_wanted = false;
            scan.take(fetched, LineMatch { is_wanted, is_last });
        }
        assert!(scan.has_lines() && scan.has_more(&ring));
        assert_eq!(scan.last(), Some(LineNo::new(2)));
    }

    #[test]
    fn a_filter_moves_the_cursor_over_the_other_lines() {
        let page = scan(
            &ring(1000),
            query(Keep::First, 3, Selection::Both),
            "99",
            None,
        );
        assert_eq!(numbers(&page), [99, 199, 299]);
        assert_eq!(
            (page.skipped_lines, page.has_more),
            (page.last_line_no.value() - 3, true)
        );
        let none = scan(
            &ring(1000),
            query(Keep::First, 3, Selection::Both),
            "nothing",
            None,
        );
        assert_eq!(
            (none.skipped_lines, none.last_line_no.value(), none.has_more),
            (1000, 1000, false)
        );
    }

    #[test]
    fn a_gap_between_lines_is_counted_where_one_stream_was_forgotten() {
        let mut ring = Ring::new(RingLimits::default());
        for (stream, lines) in [
            (Stream::Stderr, 1),
            (Stream::Stdout, 99),
            (Stream::Stderr, 1),
            (Stream::Stdout, 9),
        ] {
            (0..lines).for_each(|_| ring.append(stream, b"x\n", 0));
        }
        ring.forget(Selection::Only(Stream::Stdout));
        let page = scan(&ring, query(Keep::First, 500, Selection::Both), "", None);
        assert_eq!(numbers(&page), [1, 101]);
        assert_eq!(
            (page.dropped_lines, page.last_line_no.value(), page.has_more),
            (108, 110, false)
        );
    }

    proptest! {
        /// However a job is read, each of its lines is shown, skipped or dropped, once.
        #[test]
        fn every_line_is_accounted_for(
            steps in prop::collection::vec((any::<bool>(), 1..40_u64, 0..4_u8, any::<bool>(), 1..20_usize), 1..40),
            stderr in any::<bool>(),
        ) {
            let mut ring = Ring::new(RingLimits { lines: 50, ..RingLimits::default() });
            let selection = if stderr { Selection::Only(Stream::Stderr) } else { Selection::Both };
            let mut cursor = LineNo::START;
            let mut accounted = 0;
            let mut printed = 0;
            let mut read = |ring: &Ring, keep, filter: &str, max_lines, rest: bool| {
                loop {
                    let page = scan(ring, PageQuery { cursor, ..query(keep, max_lines, selection) }, filter, None);
                    accounted += page.lines.len() as u64 + page.skipped_lines + page.dropped_lines;
                    prop_assert!(page.last_line_no >= cursor);
                    cursor = page.last_line_no;
                    if !rest || !page.has_more {
                        return Ok(accounted);
                    }
                }
            };
            for (out, count, action, last, max_lines) in steps {
                let stream = if out { Stream::Stdout } else { Stream::Stderr };
                for _ in 0..count {
                    ring.append(stream, b"some line\n", 0);
                }
                printed += if stderr && out { 0 } else { count };
                let keep = if last { Keep::Last } else { Keep::First };
                match action {
                    0 => _ = ring.forget(Selection::Only(stream)),
                    1 => _ = read(&ring, keep, "", max_lines, false)?,
                    2 => _ = read(&ring, keep, "nothing", max_lines, false)?,
                    _ => {}
                }
            }
            let accounted = read(&ring, Keep::First, "", 7, true)?;
            // Of one stream lines that are gone may be counted with those of the other.
            let is_right = if stderr { accounted >= printed } else { accounted == printed };
            prop_assert!(is_right, "{} of {}", accounted, printed);
        }
    }
}
