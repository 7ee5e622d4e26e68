use regex::Regex;

use super::{LineNo, PageLine, Render, Ring, Selection};

/// What to look for in a job's kept lines. Lines are matched in their clean view.
#[derive(Clone, Debug)]
pub struct SearchQuery {
    /// What a line must match.
    pub pattern: Regex,
    /// Only lines behind this one.
    pub cursor: LineNo,
    /// The streams to look through.
    pub selection: Selection,
    /// How many lines to show before and after a match.
    pub context: usize,
    /// How many matches at most.
    pub max_matches: usize,
    /// How many bytes of text at most. One match is returned whatever it costs.
    pub max_bytes: usize,
}

/// A line that matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The line.
    pub line: PageLine,
    /// The lines of the selection before it, oldest first.
    pub before: Vec<String>,
    /// The lines of the selection after it, as far as there are some yet.
    pub after: Vec<String>,
}

/// A search under way.
///
/// It looks at a bounded piece of the output at a time, so that nobody who appends has to wait for it.
#[derive(Debug)]
pub struct Search {
    query: SearchQuery,
    matches: Vec<Match>,
    /// The newest lines looked at, as context for a match to come.
    recent: Vec<String>,
    /// The last line looked at.
    cursor: LineNo,
    budget: usize,
    full: bool,
}

/// How many bytes of output one step looks at, about.
const STEP_BYTES: usize = 64 << 10;

impl Search {
    /// A search that has looked at nothing yet.
    pub fn new(query: SearchQuery) -> Self {
        let (cursor, budget) = (query.cursor, query.max_bytes);
        Self { query, matches: Vec::new(), recent: Vec::new(), cursor, budget, full: false }
    }

    /// Looks at the next piece; false when there is nothing more to look at.
    pub fn step(&mut self, ring: &Ring) -> bool {
        if self.recent.is_empty() && self.matches.is_empty() && self.cursor == self.query.cursor {
            self.recall(ring);
        }
        let mut looked_at = 0;
        for line in ring.lines_after(self.cursor, self.query.selection) {
            if (self.full && !self.lacks_context()) || looked_at > STEP_BYTES {
                return looked_at > STEP_BYTES;
            }
            looked_at += line.text.len() + 1;
            self.cursor = line.line_no;
            self.take(PageLine::of(&line, Render::Clean));
        }
        false
    }

    /// The context that a match in the first line would have.
    fn recall(&mut self, ring: &Ring) {
        let reach = LineNo::new(self.cursor.value().saturating_sub(10 * self.query.context as u64));
        let before = ring.lines_after(reach, self.query.selection);
        let before = before.take_while(|line| line.line_no <= self.cursor);
        self.recent = before.map(|line| line.render(Render::Clean).into_owned()).collect();
        self.forget_old();
    }

    fn take(&mut self, line: PageLine) {
        for found in self.matches.iter_mut().rev() {
            if found.after.len() >= self.query.context {
                break;
            }
            found.after.push(line.text.clone());
        }
        let text = line.text.clone();
        if !self.full && self.query.pattern.is_match(&text) {
            self.found(line);
        }
        self.recent.push(text);
        self.forget_old();
    }

    fn found(&mut self, line: PageLine) {
        let before = self.recent.clone();
        // What follows will cost about as much as what came before.
        let context: usize = before.iter().map(|line| 2 * (line.len() + 1)).sum();
        let left = self.budget.checked_sub(line.text.len() + 1 + context);
        if left.is_none() && !self.matches.is_empty() {
            self.full = true;
            return;
        }
        self.budget = left.unwrap_or(0);
        self.matches.push(Match { line, before, after: Vec::new() });
        self.full = self.matches.len() >= self.query.max_matches;
    }

    fn forget_old(&mut self) {
        self.recent.drain(..self.recent.len().saturating_sub(self.query.context));
    }

    fn lacks_context(&self) -> bool {
        self.matches.last().is_some_and(|found| found.after.len() < self.query.context)
    }

    /// The matches, and the cursor from which a further search finds the next ones.
    pub fn finish(self) -> (Vec<Match>, LineNo) {
        let next = match self.matches.last() {
            Some(last) if self.full => last.line.line_no,
            _ => self.cursor,
        };
        (self.matches, next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::{RingLimits, Stream};

    fn ring(lines: &str) -> Ring {
        let mut ring = Ring::new(RingLimits::default());
        ring.append(Stream::Stdout, lines.as_bytes(), 0);
        ring
    }

    fn search(ring: &Ring, pattern: &str, change: impl FnOnce(&mut SearchQuery)) -> (Vec<Match>, u64) {
        let mut query = SearchQuery {
            pattern: Regex::new(pattern).unwrap(),
            cursor: LineNo::START,
            selection: Selection::Both,
            context: 1,
            max_matches: 50,
            max_bytes: 1 << 16,
        };
        change(&mut query);
        let mut search = Search::new(query);
        while search.step(ring) {}
        let (matches, next) = search.finish();
        (matches, next.value())
    }

    fn numbers(matches: &[Match]) -> Vec<u64> {
        matches.iter().map(|found| found.line.line_no.value()).collect()
    }

    #[test]
    fn a_match_comes_with_its_number_and_context() {
        let (matches, next) = search(&ring("a\nb\nerror 1\nc\nd\n"), "error", |_| {});
        assert_eq!((numbers(&matches), next), (vec![3], 5));
        assert_eq!((matches[0].before.join(","), matches[0].after.join(",")), ("b".into(), "c".into()));
    }

    #[test]
    fn neighbours_are_each_others_context() {
        let (matches, _) = search(&ring("x\nx\nx\n"), "x", |_| {});
        let contexts: Vec<_> = matches.iter().map(|found| (found.before.len(), found.after.len())).collect();
        assert_eq!(contexts, [(0, 1), (1, 1), (1, 0)]);
    }

    #[test]
    fn a_search_that_is_full_can_be_continued_without_losing_a_match() {
        let ring = ring("x\nx\nx\nx\ny\n");
        let (first, next) = search(&ring, "x", |query| query.max_matches = 2);
        assert_eq!((numbers(&first), next), (vec![1, 2], 2));
        assert_eq!(first[1].after, ["x"]);
        let (rest, _) = search(&ring, "x", |query| query.cursor = LineNo::new(next));
        assert_eq!((numbers(&rest), rest[0].before.join("")), (vec![3, 4], "x".to_owned()));
    }

    #[test]
    fn the_budget_ends_a_search_after_one_match_at_least() {
        let (matches, next) = search(&ring("long x\nlong x\nlong x\n"), "x", |query| query.max_bytes = 5);
        assert_eq!((numbers(&matches), next), (vec![1], 1));
    }

    #[test]
    fn lines_are_matched_as_a_person_sees_them() {
        let (matches, _) = search(&ring("\x1b[31mer\x1b[0mror\n"), "^error$", |_| {});
        assert_eq!(matches[0].line.text, "error");
    }

    #[test]
    fn a_long_search_goes_step_by_step() {
        let ring = ring(&"some line of output\n".repeat(9000));
        let query = SearchQuery {
            pattern: Regex::new("nothing").unwrap(),
            cursor: LineNo::START,
            selection: Selection::Both,
            context: 2,
            max_matches: 1,
            max_bytes: 100,
        };
        let mut search = Search::new(query);
        assert!(search.step(&ring), "one step must not look at everything");
        while search.step(&ring) {}
        assert_eq!(search.finish().1.value(), 9000);
    }
}
