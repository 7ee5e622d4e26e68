//! A search in bounded pieces, with context for each match.

use super::budget::Budget;
use super::line_no::LineNo;
use super::render::Render;
use super::stream::Selection;
use crate::page::{Fetched, Line, Walk};
use crate::ring::Ring;

/// A search request, without its pattern. Lines are matched in their clean view.
#[derive(Clone, Debug)]
pub struct SearchQuery {
    /// Only lines after this one.
    pub cursor: LineNo,
    /// Only lines up to this one. `None`: up to the newest. The caller passes the end that follows from it to
    /// [`Search::new`].
    pub last: Option<LineNo>,
    /// The streams to search.
    pub selection: Selection,
    /// Number of lines to show before and after a match.
    pub context: usize,
    /// Maximum matches to return.
    pub max_matches: usize,
    /// Maximum bytes of text to return. One match is returned whatever its size.
    pub max_bytes: usize,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The line.
    pub line: Line,
    /// The lines of the selection before it, oldest first.
    pub before: Vec<Line>,
    /// The lines of the selection after it, as far as available.
    pub after: Vec<Line>,
}

/// A search in progress, up to a fixed last line.
///
/// It fetches a bounded piece of the output at a time, which is matched without blocking the
/// writer.
#[derive(Debug)]
pub struct Search {
    query: SearchQuery,
    until: LineNo,
    matches: Vec<Match>,
    /// The newest lines examined, as context for a coming match.
    recent: Vec<Line>,
    walk: Walk,
    budget: Budget,
    full: bool,
}

/// Approximate bytes of a match in addition to its text: number, stream, names.
const MATCH_BYTES: usize = 40;

impl Search {
    /// A search from the query's cursor up to the line `until`. `ring` must have the context before
    /// the cursor.
    pub fn new(query: SearchQuery, ring: &Ring, until: LineNo) -> Self {
        let cursor = query.cursor;
        let budget = Budget::new(query.max_bytes);
        let walk = Walk::new(cursor, query.selection);
        let mut search = Self {
            query,
            until,
            matches: Vec::new(),
            recent: Vec::new(),
            walk,
            budget,
            full: false,
        };
        search.skip(cursor, ring);
        search
    }

    /// Skips lines up to `to`, which have no match. `ring` must have the context before the next
    /// line.
    pub fn skip(&mut self, to: LineNo, ring: &Ring) {
        self.walk.cursor = to;
        let context = self.query.context as u64;
        // Lines of one stream may be far apart, so look further back until there are enough.
        let mut span = context;
        let before = |span: u64| {
            let from = LineNo::new(to.value().saturating_sub(span));
            ring.lines_after(from, self.query.selection)
                .take_while(|line| line.line_no <= to)
        };
        // Without context the span is 0 and would never grow, but then the loop does not run.
        while span < to.value() && (before(span).count() as u64) < context {
            span = span.saturating_mul(4);
        }
        // A ring that ends earlier does not have the lines next to a match.
        let count = if ring.newest() < to {
            0
        } else {
            before(span).count()
        };
        let newest = before(span).take(count).skip(count.saturating_sub(self.query.context));
        self.recent = newest.map(|line| Line::of(&line, Render::Clean)).collect();
    }

    /// Reads the next lines, at most `most`. `None` if there is nothing left to search.
    pub fn fetch(&mut self, ring: &Ring, most: usize) -> Option<Vec<Fetched>> {
        // A full search still reads the context after its last match.
        if self.full && !self.lacks_context() {
            return None;
        }
        let mut piece = self.walk.peek(ring, most, Render::Clean);
        piece.retain(|fetched| fetched.line.line_no <= self.until);
        let end = self.until.min(ring.newest());
        if piece.is_empty() && self.walk.cursor < end {
            // The ring keeps no line up to there, so they were evicted.
            let gone = self.walk.gone_before(ring, end.next());
            self.walk.pass_line(end, gone);
        }
        (!piece.is_empty()).then_some(piece)
    }

    /// Adds a line with its result. Lines must come in the order of `fetch`.
    pub fn take(&mut self, fetched: Fetched, is_match: bool) {
        self.walk.pass(&fetched);
        // Before `found`: a line is not context of its own match.
        self.offer_context(&fetched.line);
        if !self.full && is_match {
            self.found(fetched.line.clone());
        }
        self.recent.push(fetched.line);
        self.recent.drain(..self.recent.len().saturating_sub(self.query.context));
    }

    /// The lines after a match are its context, within the budget.
    fn offer_context(&mut self, line: &Line) {
        for found in self.matches.iter_mut().rev() {
            // Earlier matches were offered the same lines, so they are complete, too.
            if found.after.len() >= self.query.context {
                break;
            }
            if !self.budget.spend_line(line.shown_bytes()) {
                self.full = true;
                break;
            }
            found.after.push(line.clone());
        }
    }

    fn found(&mut self, line: Line) {
        let is_first = self.matches.is_empty();
        self.budget.charge(MATCH_BYTES);
        if !self.budget.spend_line(line.shown_bytes()) && !is_first {
            self.full = true;
            return;
        }
        let recent = self.recent.iter().rev();
        let mut before: Vec<Line> = recent
            .take_while(|line| self.budget.spend_line(line.shown_bytes()))
            .cloned()
            .collect();
        before.reverse();
        self.matches.push(Match {
            line,
            before,
            after: Vec::new(),
        });
        self.full |= self.matches.len() >= self.query.max_matches || self.budget.is_empty();
    }

    fn lacks_context(&self) -> bool {
        let last = self.matches.last();
        !self.budget.is_empty() && last.is_some_and(|found| found.after.len() < self.query.context)
    }

    /// The range still to be searched: after the first line, up to the second. `None` while a match
    /// lacks context, or when the result is full.
    pub fn ahead(&self) -> Option<(LineNo, LineNo)> {
        (!self.full && !self.lacks_context()).then_some((self.walk.cursor, self.until))
    }

    /// The last line searched.
    pub fn cursor(&self) -> LineNo {
        self.walk.cursor
    }

    /// Number of lines evicted before they could be searched.
    pub fn dropped_lines(&self) -> u64 {
        self.walk.dropped
    }

    /// The matches, and the cursor with which another search continues.
    pub fn finish(self) -> (Vec<Match>, LineNo) {
        let next = match self.matches.last() {
            // Lines after the last match were read as its context and not searched.
            Some(last) if self.full => last.line.line_no,
            _ => self.walk.cursor,
        };
        (self.matches, next)
    }
}

#[cfg(test)]
mod tests {
    use regex::Regex;

    use super::*;
    use crate::Stream;
    use crate::ring::RingLimits;

    fn joined(lines: &[Line]) -> String {
        lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join(",")
    }

    fn ring(lines: &str) -> Ring {
        let mut ring = Ring::new(RingLimits::default());
        ring.append(Stream::Stdout, lines.as_bytes(), 0);
        ring
    }

    fn query() -> SearchQuery {
        SearchQuery {
            cursor: LineNo::START,
            last: None,
            selection: Selection::Both,
            context: 1,
            max_matches: 50,
            max_bytes: 1 << 16,
        }
    }

    fn search(
        ring: &Ring,
        pattern: &str,
        change: impl FnOnce(&mut SearchQuery),
    ) -> (Vec<Match>, u64) {
        let mut query = query();
        change(&mut query);
        let mut search = Search::new(query, ring, ring.newest());
        let pattern = Regex::new(pattern).unwrap();
        while let Some(lines) = search.fetch(ring, usize::MAX) {
            for fetched in lines {
                let is_match = pattern.is_match(&fetched.line.text);
                search.take(fetched, is_match);
            }
        }
        let (matches, next) = search.finish();
        (matches, next.value())
    }

    fn lines_ahead(search: &Search) -> Option<(u64, u64)> {
        search.ahead().map(|(after, until)| (after.value(), until.value()))
    }

    fn numbers(matches: &[Match]) -> Vec<u64> {
        matches.iter().map(|found| found.line.line_no.value()).collect()
    }

    #[test]
    fn a_match_comes_with_its_number_and_context() {
        let (matches, next) = search(&ring("a\nb\nerror 1\nc\nd\n"), "error", |_| {});
        assert_eq!((numbers(&matches), next), (vec![3], 5));
        assert_eq!(
            (joined(&matches[0].before), joined(&matches[0].after)),
            ("b".into(), "c".into())
        );
    }

    #[test]
    fn neighbours_are_each_others_context() {
        let (matches, _) = search(&ring("x\nx\nx\n"), "x", |_| {});
        let contexts: Vec<_> =
            matches.iter().map(|found| (found.before.len(), found.after.len())).collect();
        assert_eq!(contexts, [(0, 1), (1, 1), (1, 0)]);
    }

    #[test]
    fn a_search_that_is_full_can_be_continued_without_losing_a_match() {
        let ring = ring("x\nx\nx\nx\ny\n");
        let (first, next) = search(&ring, "x", |query| query.max_matches = 2);
        assert_eq!((numbers(&first), next), (vec![1, 2], 2));
        assert_eq!(joined(&first[1].after), "x");
        let (rest, _) = search(&ring, "x", |query| query.cursor = LineNo::new(next));
        assert_eq!(
            (numbers(&rest), joined(&rest[0].before)),
            (vec![3, 4], "x".to_owned())
        );
    }

    #[test]
    fn a_search_that_skips_lines_has_the_context_before_its_place() {
        let mut ring = ring("a\nb\n");
        ring.append(Stream::Stderr, "far\n".repeat(100).as_bytes(), 0);
        let last_skipped = ring.newest();
        let query = SearchQuery {
            selection: Selection::Only(Stream::Stdout),
            context: 2,
            ..query()
        };
        let mut search = Search::new(query, &ring, last_skipped.next());

        search.skip(last_skipped, &ring);

        ring.append(Stream::Stdout, b"error\n", 0);
        let fetched = search.fetch(&ring, usize::MAX).unwrap().remove(0);
        search.take(fetched, true);
        let (matches, _) = search.finish();
        assert_eq!(numbers(&matches), [103]);
        assert_eq!(joined(&matches[0].before), "a,b");
    }

    #[test]
    fn a_full_search_reads_the_context_after_its_last_match() {
        let ring = ring(&format!("{}\n", "x".repeat(1000)).repeat(1000));
        let query = SearchQuery {
            max_matches: 1,
            ..query()
        };
        let mut search = Search::new(query, &ring, ring.newest());
        let first_piece = search.fetch(&ring, usize::MAX).unwrap();
        let last = first_piece.len() - 1;
        assert!(last < 999, "the piece is a part of the output");
        for (index, fetched) in first_piece.into_iter().enumerate() {
            search.take(fetched, index == last);
        }

        let second_piece = search.fetch(&ring, usize::MAX).unwrap();
        search.take(second_piece.into_iter().next().unwrap(), false);

        assert_eq!(search.fetch(&ring, usize::MAX), None);
        assert_eq!(search.finish().0[0].after.len(), 1);
    }

    #[test]
    fn lines_may_be_skipped_once_the_last_match_has_its_context() {
        let ring = ring("x\ny\nz\n");
        let mut search = Search::new(query(), &ring, ring.newest());
        assert_eq!(lines_ahead(&search), Some((0, 3)));
        let mut piece = search.fetch(&ring, usize::MAX).unwrap().into_iter();

        search.take(piece.next().unwrap(), true);
        assert_eq!(lines_ahead(&search), None);

        search.take(piece.next().unwrap(), false);
        assert_eq!(lines_ahead(&search), Some((2, 3)));
    }

    #[test]
    fn a_search_counts_no_line_after_its_end_as_dropped() {
        let mut ring = Ring::new(RingLimits {
            lines: 10,
            ..RingLimits::default()
        });
        ring.append(Stream::Stdout, b"a\nb\n", 0);
        let mut search = Search::new(query(), &ring, ring.newest());
        for fetched in search.fetch(&ring, usize::MAX).unwrap() {
            search.take(fetched, false);
        }

        ring.append(Stream::Stdout, "later\n".repeat(100).as_bytes(), 0);
        assert_eq!(search.fetch(&ring, usize::MAX), None);
        ring.trim(0);
        assert_eq!(search.fetch(&ring, usize::MAX), None);

        assert_eq!((search.cursor().value(), search.dropped_lines()), (2, 0));
    }

    #[test]
    fn lines_evicted_before_a_search_came_are_counted_up_to_its_end() {
        let mut ring = ring("a\nb\n");
        let mut search = Search::new(query(), &ring, ring.newest());
        ring.append(Stream::Stdout, b"later\n", 0);
        ring.trim(0);

        assert_eq!(search.fetch(&ring, usize::MAX), None);

        assert_eq!((search.cursor().value(), search.dropped_lines()), (2, 2));
    }

    #[test]
    fn a_search_of_one_stream_counts_no_line_after_its_end_as_dropped() {
        let mut ring = Ring::new(RingLimits {
            lines: 10,
            ..RingLimits::default()
        });
        ring.append(Stream::Stdout, "line\n".repeat(100).as_bytes(), 0);
        let query = SearchQuery {
            selection: Selection::Only(Stream::Stdout),
            ..query()
        };
        let mut search = Search::new(query, &ring, LineNo::new(5));

        assert_eq!(search.fetch(&ring, usize::MAX), None);

        assert_eq!((search.cursor().value(), search.dropped_lines()), (5, 5));
    }

    #[test]
    fn the_budget_ends_a_search_after_one_match_at_least() {
        let (matches, next) = search(&ring("long x\nlong x\nlong x\n"), "x", |query| {
            query.max_bytes = 5
        });
        assert_eq!((numbers(&matches), next), (vec![1], 1));
    }

    #[test]
    fn a_match_costs_more_than_its_text() {
        let ring = ring(&"x\n".repeat(100));
        let (matches, _) = search(&ring, "x", |query| {
            (query.context, query.max_bytes) = (0, 10 * (MATCH_BYTES + 2));
        });
        assert_eq!(matches.len(), 10);
    }

    #[test]
    fn a_search_whose_budget_is_spent_reads_no_further() {
        let ring = ring(&"x\n".repeat(100));
        let query = SearchQuery {
            cursor: LineNo::START,
            last: None,
            selection: Selection::Both,
            context: 5,
            max_matches: 50,
            max_bytes: MATCH_BYTES + 2,
        };
        let mut search = Search::new(query, &ring, ring.newest());
        let first = search.fetch(&ring, usize::MAX).unwrap().remove(0);

        search.take(first, true);

        assert_eq!(
            (search.fetch(&ring, usize::MAX), search.ahead()),
            (None, None)
        );
    }

    #[test]
    fn context_costs_budget_too() {
        let long = "y".repeat(1000);
        let ring = ring(&format!("x\nx\nx\n{long}\n{long}\n{long}\nx\n"));
        let (matches, next) = search(&ring, "x", |query| {
            (query.context, query.max_bytes) = (3, 2700)
        });
        let size: usize = matches
            .iter()
            .flat_map(|found| found.before.iter().chain(&found.after).chain([&found.line]))
            .map(|line| line.text.len())
            .sum();
        assert!(size <= 2700, "{size}");
        assert_eq!((numbers(&matches), next), (vec![1, 2, 3], 3));
    }

    #[test]
    fn lines_are_matched_as_a_person_sees_them() {
        let (matches, _) = search(&ring("\x1b[31mer\x1b[0mror\n"), "^error$", |_| {});
        assert_eq!(matches[0].line.text, "error");
    }

    #[test]
    fn a_long_search_goes_step_by_step() {
        let mut ring = ring(&"some line of output\n".repeat(9000));
        let query = SearchQuery {
            cursor: LineNo::START,
            last: None,
            selection: Selection::Both,
            context: 2,
            max_matches: 1,
            max_bytes: 100,
        };
        let mut search = Search::new(query, &ring, ring.newest());
        let first = search.fetch(&ring, usize::MAX).expect("there are lines");
        assert!(first.len() < 9000, "one piece must not be everything");
        first.into_iter().for_each(|fetched| search.take(fetched, false));
        // Output that arrives meanwhile is for the next search; lines evicted meanwhile are
        // counted.
        ring.append(Stream::Stdout, b"nothing\n", 0);
        ring.trim(100_000);
        let gone = ring.before_first().value() - search.walk.cursor.value();
        while let Some(lines) = search.fetch(&ring, usize::MAX) {
            lines.into_iter().for_each(|fetched| search.take(fetched, false));
        }
        assert_eq!((search.dropped_lines(), search.matches.len()), (gone, 0));
        assert_eq!(search.finish().1.value(), 9000);
    }

    #[test]
    fn a_search_whose_lines_are_evicted_ends_where_it_was_to_end() {
        let mut ring = Ring::new(RingLimits {
            lines: 2,
            ..RingLimits::default()
        });
        ring.append(Stream::Stdout, b"one\ntwo\n", 0);
        let query = SearchQuery {
            cursor: LineNo::START,
            last: None,
            selection: Selection::Both,
            context: 1,
            max_matches: 50,
            max_bytes: 1 << 16,
        };
        let mut search = Search::new(query, &ring, ring.newest());
        ring.append(Stream::Stdout, b"three\nfour\n", 0);

        assert!(search.fetch(&ring, usize::MAX).is_none());

        assert_eq!(search.cursor(), LineNo::new(2));
        assert_eq!(search.dropped_lines(), 2);
    }
}
