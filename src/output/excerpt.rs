use super::{Budget, Line, LineNo, Render, Ring, Selection, Stream};

/// The beginning and the end of a job's output, as much as a budget of bytes allows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// The first lines; all of them when nothing is left out, none when the first ones are no longer kept.
    pub head: Vec<String>,
    /// The last lines, when some are left out before them.
    pub tail: Vec<String>,
    /// Lines between head and tail.
    pub omitted_lines: u64,
    /// Numbers of the lines in it that came on stderr.
    pub stderr_lines: Vec<u64>,
}

impl Excerpt {
    /// Half of the budget goes to the first lines, half to the last, each on a line border. When the first lines are gone the last
    /// get it all.
    pub fn of(ring: &Ring, max_bytes: usize) -> Self {
        let total = ring.newest().value();
        let is_complete = total == ring.line_count() as u64;
        let mut head = if is_complete { first_lines(ring, max_bytes) } else { Vec::new() };
        let mut tail = Vec::new();
        if head.len() < ring.line_count() {
            let for_tail = if is_complete { max_bytes / 2 } else { max_bytes };
            tail = last_lines(ring, for_tail);
            let mut budget = Budget::new(max_bytes - for_tail);
            let half = head.iter().take_while(|line| budget.spend_line(line)).count();
            head.truncate(half.min(ring.line_count() - tail.len()));
        }
        let is_shown = |line_no: u64| line_no <= head.len() as u64 || line_no > total - tail.len() as u64;
        let stderr = ring.lines_after(LineNo::START, Selection::Only(Stream::Stderr));
        let stderr_lines = stderr.map(|line| line.line_no.value()).filter(|no| is_shown(*no)).collect();
        let omitted_lines = total - head.len() as u64 - tail.len() as u64;
        Self { head, tail, omitted_lines, stderr_lines }
    }
}

fn text(line: Line<'_>) -> String {
    line.render(Render::Clean).into_owned()
}

fn first_lines(ring: &Ring, max_bytes: usize) -> Vec<String> {
    let mut budget = Budget::new(max_bytes);
    let lines = ring.lines_after(LineNo::START, Selection::Both);
    lines.map(text).take_while(|line| budget.spend_line(line)).collect()
}

fn last_lines(ring: &Ring, max_bytes: usize) -> Vec<String> {
    let mut budget = Budget::new(max_bytes);
    // No more lines than the budget has bytes.
    let behind = ring.newest().value().saturating_sub(max_bytes as u64 + 1);
    let last: Vec<String> = ring.lines_after(LineNo::new(behind), Selection::Both).map(text).collect();
    let mut tail: Vec<String> = last.into_iter().rev().take_while(|line| budget.spend_line(line)).collect();
    tail.reverse();
    tail
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::RingLimits;

    fn ring(lines: u64, kept: usize) -> Ring {
        let mut ring = Ring::new(RingLimits { lines: kept, ..RingLimits::default() });
        for n in 1..=lines {
            ring.append(Stream::Stdout, format!("{n:04}\n").as_bytes(), 0);
        }
        ring
    }

    #[test]
    fn what_fits_is_all_head() {
        let excerpt = Excerpt::of(&ring(10, 100), 50);
        assert_eq!((excerpt.head.len(), excerpt.tail.len(), excerpt.omitted_lines), (10, 0, 0));
    }

    #[test]
    fn what_does_not_fit_is_left_out_in_the_middle() {
        let excerpt = Excerpt::of(&ring(100, 100), 50);
        assert_eq!(excerpt.head, ["0001", "0002", "0003", "0004", "0005"]);
        assert_eq!(excerpt.tail, ["0096", "0097", "0098", "0099", "0100"]);
        assert_eq!(excerpt.omitted_lines, 90);
    }

    #[test]
    fn without_the_first_lines_there_is_no_head() {
        let excerpt = Excerpt::of(&ring(100, 50), 50);
        assert_eq!((excerpt.head.len(), excerpt.tail.len(), excerpt.omitted_lines), (0, 10, 90));
    }
}
