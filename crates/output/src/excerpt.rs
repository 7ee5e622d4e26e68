//! The first and last lines of an output, for a reply of bounded size.

use super::budget::Budget;
use super::line_no::LineNo;
use super::page::Line;
use super::render::Render;
use super::stream::Selection;
use crate::ring::Ring;

/// The start and the end of a job's output, within a budget of bytes, and the last of its errors.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// The first lines: all of them if nothing is omitted, none if the first ones were evicted.
    pub head: Vec<Line>,
    /// The last lines of stderr that are neither in `head` nor in `tail`, oldest first.
    pub errors: Vec<Line>,
    /// The last lines, if lines before them are omitted.
    pub tail: Vec<Line>,
    /// Number of lines between head and tail. Some of them may be in `errors`.
    pub between: u64,
}

/// Budget of an [`Excerpt`], in bytes of its lines.
#[derive(Clone, Copy, Debug)]
pub struct ExcerptBudget {
    /// Maximum bytes of an output that is shown as a whole.
    pub whole: usize,
    /// Maximum bytes of one that is cut. Half of it is for the last lines of stderr, and the rest
    /// in equal parts for the first and the last lines.
    pub cut: usize,
}

impl Excerpt {
    /// Takes the first lines from `first` and the last from `last`; both may be the same ring.
    /// `errors` are the last lines of stderr. Each part ends at a line border. If the first lines
    /// were evicted, the last get their part.
    pub fn of(first: &Ring, last: &Ring, errors: Vec<Line>, budget: ExcerptBudget) -> Self {
        let total = last.newest().value();
        let has_head = first.before_first() == LineNo::START
            && first.line_count() as u64 == first.newest().value();
        if has_head {
            let head = first_lines(first, budget.whole);
            if head.len() as u64 == total {
                return Self {
                    head,
                    ..Self::default()
                };
            }
        }

        let errors = last_of(errors, budget.cut / 2);
        let cost: usize = errors.iter().map(|line| line.shown_bytes() + 1).sum();
        let rest = budget.cut - cost;
        let for_tail = if has_head { rest / 2 } else { rest };
        let tail = last_lines(last, for_tail);
        let mut head = if has_head {
            first_lines(first, rest - for_tail)
        } else {
            Vec::new()
        };
        let before_tail = total - tail.len() as u64;
        head.truncate(usize::try_from(before_tail).unwrap_or(usize::MAX));
        let head_end = head.len() as u64;
        let between = head_end + 1..=before_tail;
        Self {
            between: before_tail - head_end,
            errors: errors
                .into_iter()
                .filter(|line| between.contains(&line.line_no.value()))
                .collect(),
            head,
            tail,
        }
    }
}

/// The last of these lines, within a budget.
fn last_of(lines: Vec<Line>, max_bytes: usize) -> Vec<Line> {
    let mut budget = Budget::new(max_bytes);
    let mut last: Vec<Line> = lines
        .into_iter()
        .rev()
        .take_while(|line| budget.spend_line(line.shown_bytes()))
        .collect();
    last.reverse();
    last
}

fn first_lines(ring: &Ring, max_bytes: usize) -> Vec<Line> {
    let mut budget = Budget::new(max_bytes);
    ring.lines_after(LineNo::START, Selection::Both)
        .map(|line| Line::of(&line, Render::Clean))
        .take_while(|line| budget.spend_line(line.shown_bytes()))
        .collect()
}

fn last_lines(ring: &Ring, max_bytes: usize) -> Vec<Line> {
    // A line costs at least one byte, its end, so no more than `max_bytes` lines fit.
    let behind = ring.newest().value().saturating_sub(max_bytes as u64);
    let last = ring.lines_after(LineNo::new(behind), Selection::Both);
    last_of(
        last.map(|line| Line::of(&line, Render::Clean)).collect(),
        max_bytes,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Stream;
    use crate::ring::RingLimits;

    fn texts(lines: &[Line]) -> Vec<&str> {
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
        let budget = ExcerptBudget { whole: 50, cut: 50 };
        Excerpt::of(ring, ring, Vec::new(), budget)
    }

    #[test]
    fn output_that_fits_is_all_head() {
        let excerpt = excerpt(&ring(10, 100));
        assert_eq!(
            (excerpt.head.len(), excerpt.tail.len(), excerpt.between),
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
        assert_eq!(excerpt.between, 90);
    }

    #[test]
    fn an_empty_line_takes_one_byte() {
        let mut ring = Ring::new(RingLimits::default());
        ring.append(Stream::Stdout, &[b'\n'; 100], 0);

        let excerpt = excerpt(&ring);

        assert_eq!((excerpt.head.len(), excerpt.tail.len()), (25, 25));
    }

    #[test]
    fn without_the_first_lines_there_is_no_head() {
        let excerpt = excerpt(&ring(100, 50));
        assert_eq!(
            (excerpt.head.len(), excerpt.tail.len(), excerpt.between),
            (0, 10, 90)
        );
    }

    /// The excerpt of a ring with its last errors, in 40 bytes if it is cut.
    fn excerpt_with_errors(ring: &Ring) -> Excerpt {
        let errors = ring.lines_after(LineNo::START, Selection::Only(Stream::Stderr));
        let errors = errors.map(|line| Line::of(&line, Render::Clean)).collect();
        let budget = ExcerptBudget { whole: 50, cut: 40 };
        Excerpt::of(ring, ring, errors, budget)
    }

    #[test]
    fn the_last_errors_are_shown_although_they_are_in_the_middle() {
        let mut ring = ring(40, 1000);
        ring.append(Stream::Stderr, b"error: a\nerror: b\n", 0);
        for n in 43..=100 {
            ring.append(Stream::Stdout, format!("{n:04}\n").as_bytes(), 0);
        }

        let excerpt = excerpt_with_errors(&ring);

        assert_eq!(texts(&excerpt.errors), ["error: a", "error: b"]);
        assert_eq!(texts(&excerpt.head), ["0001", "0002"]);
        assert_eq!(texts(&excerpt.tail), ["0099", "0100"]);
        assert_eq!(excerpt.between, 96);
    }

    #[test]
    fn errors_that_are_in_the_head_or_the_tail_are_not_repeated() {
        let mut ring = Ring::new(RingLimits::default());
        for n in 1..=50 {
            ring.append(Stream::Stdout, format!("{n:04}\n").as_bytes(), 0);
            if [1, 2, 25, 49, 50].contains(&n) {
                ring.append(Stream::Stderr, format!("e{n}\n").as_bytes(), 0);
            }
        }

        let excerpt = excerpt_with_errors(&ring);

        assert_eq!(texts(&excerpt.head), ["0001", "e1"]);
        assert_eq!(texts(&excerpt.errors), ["e2", "e25", "e49"]);
        assert_eq!(texts(&excerpt.tail), ["0050", "e50"]);
        assert_eq!(excerpt.between, 51);
    }

    #[test]
    fn errors_get_at_most_half_of_the_budget() {
        let mut ring = ring(20, 1000);
        ring.append(
            Stream::Stderr,
            b"error: 1\nerror: 2\nerror: 3\nerror: 4\n",
            0,
        );
        for n in 25..=50 {
            ring.append(Stream::Stdout, format!("{n:04}\n").as_bytes(), 0);
        }

        let excerpt = excerpt_with_errors(&ring);

        // The errors take 18 of the 40 bytes; head and tail get 11 each.
        assert_eq!(texts(&excerpt.errors), ["error: 3", "error: 4"]);
        assert_eq!((excerpt.head.len(), excerpt.tail.len()), (2, 2));
    }

    #[test]
    fn a_line_end_of_an_error_takes_a_byte_of_the_budget() {
        let mut ring = ring(20, 1000);
        ring.append(Stream::Stderr, b"1\n2\n3\n4\n5\n6\n7\n8\n9\n", 0);
        for n in 30..=50 {
            ring.append(Stream::Stdout, format!("{n:04}\n").as_bytes(), 0);
        }

        let excerpt = excerpt_with_errors(&ring);

        assert_eq!(excerpt.errors.len(), 9);
        assert_eq!((excerpt.head.len(), excerpt.tail.len()), (2, 2));
    }

    #[test]
    fn after_a_stream_is_deleted_there_is_no_head() {
        let mut ring = Ring::new(RingLimits::default());
        ring.append(Stream::Stderr, b"error\n", 0);
        for n in 2..=20 {
            ring.append(Stream::Stdout, format!("{n:04}\n").as_bytes(), 0);
        }
        ring.append(Stream::Stderr, b"the last error\n", 0);
        ring.forget(Selection::Only(Stream::Stdout));

        let excerpt = excerpt_with_errors(&ring);

        assert_eq!((texts(&excerpt.head), excerpt.between), (Vec::new(), 19));
        assert_eq!(texts(&excerpt.tail), ["error", "the last error"]);
    }
}
