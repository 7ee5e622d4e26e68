//! Reads by position: lines, characters or bytes.

use super::budget::Budget;
use super::line::RingLine;
use super::line_no::LineNo;
use super::render::Render;
use super::stream::Selection;
use super::unit::{Measure, Unit};
use crate::page::Line;
use crate::ring::Ring;

/// A read request: a part of the output, by its position since the start of the job.
///
/// Lines and characters are those of finished lines; bytes of one stream include its unfinished
/// line. In both streams, lines are ordered by number.
#[derive(Clone, Copy, Debug)]
pub struct ReadQuery {
    /// Unit of `offset` and `length`.
    pub unit: Unit,
    /// Units to skip from the start. A negative offset counts from the end.
    pub offset: i64,
    /// Maximum units to return.
    pub length: usize,
    /// For lines: maximum bytes of text, up to a line border. At least one line is returned,
    /// however long it is.
    pub max_bytes: usize,
    /// The selected streams, in which positions count.
    pub selection: Selection,
    /// How bytes become text. Characters are counted in this rendering.
    pub render: Render,
}

/// The answer to a [`ReadQuery`].
///
/// Positions count from the start of the job: the same query returns the same answer until
/// eviction, which changes no position. (If the output of one stream was deleted, the other
/// stream's earlier output can only be read with a selection of that stream.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Start of the content; later than requested if that was evicted.
    pub offset: u64,
    /// Start of the kept output.
    pub available_from: u64,
    /// Current end of the output.
    pub total: u64,
    /// The content.
    pub content: Content,
}

/// A part of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Whole lines.
    Lines(Vec<Line>),
    /// Text, line ends included.
    Chars(String),
    /// Raw bytes.
    Bytes(Vec<u8>),
}

impl ReadQuery {
    /// How positions of this query count.
    pub fn measure(&self) -> Measure {
        Measure::new(self.unit, self.render)
    }
}

impl Reading {
    /// Start of a query, counted from the start of the job, and current end of the output.
    pub fn place(ring: &Ring, query: &ReadQuery) -> (u64, u64) {
        let total = match (query.unit, query.selection) {
            // Includes the unfinished line. No other unit does.
            (Unit::Bytes, Selection::Only(stream)) => ring.total_bytes(stream),
            _ => ring.extent(ring.newest(), query.selection, query.measure()),
        };
        (
            u64::try_from(query.offset)
                .unwrap_or_else(|_| total.saturating_sub(query.offset.unsigned_abs())),
            total,
        )
    }

    /// Reads a part. The cost depends on the returned amount, not on the kept amount.
    pub fn of(ring: &Ring, query: &ReadQuery) -> Self {
        let (asked, total) = Self::place(ring, query);
        let last_gone = ring.last_gone(query.selection);

        let available_from = ring.extent(last_gone, query.selection, query.measure());
        let offset = asked.max(available_from);
        let content = match (query.unit, query.selection) {
            (Unit::Bytes, Selection::Only(stream)) => {
                Content::Bytes(ring.bytes_from(stream, offset, query.length).1.into_owned())
            }
            (Unit::Lines, _) => Content::Lines(lines(ring, query, offset)),
            (Unit::Chars, _) => Content::Chars(chars(ring, query, offset)),
            (Unit::Bytes, Selection::Both) => Content::Bytes(bytes(ring, query, offset)),
        };
        Self {
            offset,
            available_from,
            total,
            content,
        }
    }

    /// Units in this part.
    pub fn returned(&self) -> u64 {
        match &self.content {
            Content::Lines(lines) => lines.len() as u64,
            Content::Chars(text) => text.chars().count() as u64,
            Content::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Number of units after this part.
    pub fn remaining(&self) -> u64 {
        self.total.saturating_sub(self.offset + self.returned())
    }
}

/// The last line that is entirely before `offset`. A binary search.
fn line_before(ring: &Ring, query: &ReadQuery, offset: u64) -> LineNo {
    let mut before = ring.last_gone(query.selection).value();
    let mut behind = ring.newest().value() + 1;
    while behind - before > 1 {
        let middle = before + (behind - before) / 2;
        let end = ring.extent(LineNo::new(middle), query.selection, query.measure());
        if end <= offset {
            before = middle
        } else {
            behind = middle
        }
    }
    LineNo::new(before)
}

/// The lines from `offset` on, and how much of the first one to skip.
fn lines_from<'a>(
    ring: &'a Ring,
    query: &ReadQuery,
    offset: u64,
) -> (usize, impl Iterator<Item = RingLine<'a>>) {
    let before = line_before(ring, query, offset);
    let skip = offset.saturating_sub(ring.extent(before, query.selection, query.measure()));
    (
        usize::try_from(skip).unwrap_or(usize::MAX),
        ring.lines_after(before, query.selection),
    )
}

fn lines(ring: &Ring, query: &ReadQuery, offset: u64) -> Vec<Line> {
    let mut budget = Budget::new(query.max_bytes);
    // A position in lines is a line border, so there is nothing to skip within a line.
    let (_, found) = lines_from(ring, query, offset);
    let mut lines = Vec::new();
    for line in found.take(query.length) {
        let rendered = Line::of(&line, query.render);
        if !budget.spend(rendered.cost(&line) + 1) && !lines.is_empty() {
            break;
        }
        lines.push(rendered);
    }
    lines
}

fn chars(ring: &Ring, query: &ReadQuery, offset: u64) -> String {
    let (mut skip, found) = lines_from(ring, query, offset);
    let mut wanted = query.length;
    let mut text = String::new();
    for line in found {
        let rendered = line.render(query.render);
        let whole = rendered.chars().chain(line.line_end(query.render).chars());
        // `take` leaves 0: only the first line is entered in its middle.
        for c in whole.skip(std::mem::take(&mut skip)).take(wanted) {
            text.push(c);
            wanted -= 1;
        }
        if wanted == 0 {
            break;
        }
    }
    text
}

fn bytes(ring: &Ring, query: &ReadQuery, offset: u64) -> Vec<u8> {
    let (mut skip, found) = lines_from(ring, query, offset);
    let mut bytes = Vec::new();
    for line in found {
        let whole = line.text.iter().chain(line.terminator.as_bytes());
        bytes.extend(whole.skip(std::mem::take(&mut skip)).take(query.length - bytes.len()));
        if bytes.len() == query.length {
            break;
        }
    }
    bytes
}

#[cfg(test)]
mod tests;
