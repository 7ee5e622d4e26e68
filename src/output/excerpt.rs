//! The first and last lines of an output, for a reply of bounded size.

use super::budget::Budget;
use super::line_no::LineNo;
use super::page::PageLine;
use super::render::Render;
use super::stream::Selection;
use crate::output::ring::Ring;

/// The start and the end of a job's output, within a budget of bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// The first lines: all of them if nothing is omitted, none if the first ones were evicted.
    pub head: Vec<PageLine>,
    /// The last lines, if lines before them are omitted.
    pub tail: Vec<PageLine>,
    /// Number of lines omitted between head and tail.
    pub omitted_lines: u64,
}

impl Excerpt {
    /// If all lines fit into the budget, all are in the head. Otherwise the first lines get half of
    /// it and the last lines the other half, each up to a line border. If the first lines were
    /// evicted, the last lines get all of it.
    ///
    /// The first lines are in `first`, the last in `last`. Both may be the same ring.
    pub fn of(first: &Ring, last: &Ring, max_bytes: usize) -> Self {
        let total = last.newest().value();
        let has_head = first.before_first() == LineNo::START
            // Fewer lines than numbers: some were deleted, and the head would have holes.
            && first.line_count() as u64 == first.newest().value();
        let mut head = if has_head {
            first_lines(first, max_bytes)
        } else {
            Vec::new()
        };
        let mut tail = Vec::new();
        if (head.len() as u64) < total {
            let for_tail = if has_head { max_bytes / 2 } else { max_bytes };
            tail = last_lines(last, for_tail);
            let mut budget = Budget::new(max_bytes - for_tail);
            let half = head.iter().take_while(|line| budget.spend_line(line.shown_bytes())).count();
            let between = usize::try_from(total - tail.len() as u64).unwrap_or(usize::MAX);
            // Not more than `between`, so that no line is in both head and tail.
            head.truncate(half.min(between));
        }
        Self {
            omitted_lines: total - (head.len() + tail.len()) as u64,
            head,
            tail,
        }
    }
}

fn first_lines(ring: &Ring, max_bytes: usize) -> Vec<PageLine> {
    let mut budget = Budget::new(max_bytes);
    ring.lines_after(LineNo::START, Selection::Both)
        .map(|line| PageLine::of(&line, Render::Clean))
        .take_while(|line| budget.spend_line(line.shown_bytes()))
        .collect()
}

fn last_lines(ring: &Ring, max_bytes: usize) -> Vec<PageLine> {
    let mut budget = Budget::new(max_bytes);
    // A line costs at least one byte, so earlier lines can't fit and need not be rendered.
    let behind = ring.newest().value().saturating_sub(max_bytes as u64 + 1);
    let last: Vec<PageLine> = ring
        .lines_after(LineNo::new(behind), Selection::Both)
        .map(|line| PageLine::of(&line, Render::Clean))
        .collect();
    let mut tail: Vec<PageLine> = last
        .into_iter()
        .rev()
        .take_while(|line| budget.spend_line(line.shown_bytes()))
        .collect();
    tail.reverse();
    tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::Stream;
    use crate::output::ring::RingLimits;

    fn texts(lines: &[PageLine]) -> Vec<&str> {
        lines.iter().map(|line| line.text.as_str()).collect()
    }

    fn ring(lines: u64, kept: usize) -> Ring {
        let mut ring = Ring::new(RingLimits {
            lines: kept,
            ..RingLimits::default()
        });
        for n in 1..=lines {
            ring.append(Stream::Stdout, format!("{n:04}\n").as_bytes(), 0);
        }
        ring
    }

    fn excerpt(ring: &Ring) -> Excerpt {
        Excerpt::of(ring, ring, 50)
    }

    #[test]
    fn output_that_fits_is_all_head() {
        let excerpt = excerpt(&ring(10, 100));
        assert_eq!(
            (
                excerpt.head.len(),
                excerpt.tail.len(),
                excerpt.omitted_lines
            ),
            (10, 0, 0)
        );
    }

    #[test]
    fn what_does_not_fit_is_left_out_in_the_middle() {
        let excerpt = excerpt(&ring(100, 100));
        assert_eq!(
            texts(&excerpt.head),
            ["0001", "0002", "0003", "0004", "0005"]
        );
        assert_eq!(
            texts(&excerpt.tail),
            ["0096", "0097", "0098", "0099", "0100"]
        );
        assert_eq!(excerpt.omitted_lines, 90);
    }

    #[test]
    fn without_the_first_lines_there_is_no_head() {
        let excerpt = excerpt(&ring(100, 50));
        assert_eq!(
            (
                excerpt.head.len(),
                excerpt.tail.len(),
                excerpt.omitted_lines
            ),
            (0, 10, 90)
        );
    }
}
