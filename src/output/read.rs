use super::{Budget, Line, LineNo, PageLine, Render, Ring, Selection, Unit};

/// What a reader asks for: a part of the output, by its position since the job began.
///
/// Lines and characters are those of finished lines; bytes of one stream include its unfinished line. In both streams,
/// lines come in the order of their numbers.
#[derive(Clone, Copy, Debug)]
pub struct ReadQuery {
    /// What `offset` and `length` count.
    pub unit: Unit,
    /// Units to skip from the beginning; a negative offset counts from the end.
    pub offset: i64,
    /// Most units to return.
    pub length: usize,
    /// Of lines: how many bytes of text at most, ended on a line border. One line is returned however long it is.
    pub max_bytes: usize,
    /// The streams to read, in which positions count.
    pub selection: Selection,
    /// How bytes become text. Characters are counted in this rendering.
    pub render: Render,
}

/// The answer to a [`ReadQuery`].
///
/// Positions are absolute since the job began: the same query gives the same answer until eviction, and what is evicted
/// moves nothing. (When output of one stream was forgotten, what came before its end can be read by stream only.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Where the content begins: later than asked for when that is no longer kept.
    pub offset: u64,
    /// Where the kept part begins.
    pub available_from: u64,
    /// Where the output ends, so far.
    pub total: u64,
    /// What is there.
    pub content: Content,
}

/// A part of the output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// Whole lines.
    Lines(Vec<PageLine>),
    /// Text, line ends included.
    Chars(String),
    /// Bytes as they came.
    Bytes(Vec<u8>),
}

impl Reading {
    /// Where a query begins, counted from the beginning, and where the output ends so far.
    pub fn place(ring: &Ring, query: &ReadQuery) -> (u64, u64) {
        let total = match (query.unit, query.selection) {
            (Unit::Bytes, Selection::Only(stream)) => ring.total_bytes(stream),
            _ => ring.extent(ring.newest(), query.selection, (query.unit, query.render)),
        };
        let from_end = |_| total.saturating_sub(query.offset.unsigned_abs());
        (u64::try_from(query.offset).unwrap_or_else(from_end), total)
    }

    /// Reads. What it costs depends on what is returned, not on how much is kept.
    pub fn of(ring: &Ring, query: &ReadQuery) -> Self {
        let extent = |line_no| ring.extent(line_no, query.selection, (query.unit, query.render));
        let (asked, total) = Self::place(ring, query);
        let available_from = extent(ring.last_gone(query.selection));
        let offset = asked.max(available_from);
        let content = match (query.unit, query.selection) {
            (Unit::Bytes, Selection::Only(stream)) => {
                Content::Bytes(ring.bytes_from(stream, offset, query.length).1.into_owned())
            }
            (Unit::Lines, _) => Content::Lines(lines(ring, query, offset)),
            (Unit::Chars, _) => Content::Chars(chars(ring, query, offset)),
            (Unit::Bytes, Selection::Both) => Content::Bytes(bytes(ring, query, offset)),
        };
        Self { offset, available_from, total, content }
    }

    /// Units in this part.
    pub fn returned(&self) -> u64 {
        match &self.content {
            Content::Lines(lines) => lines.len() as u64,
            Content::Chars(text) => text.chars().count() as u64,
            Content::Bytes(bytes) => bytes.len() as u64,
        }
    }

    /// Units behind this part.
    pub fn remaining(&self) -> u64 {
        self.total.saturating_sub(self.offset + self.returned())
    }
}

/// The last line that lies wholly before `offset`. A binary search.
fn line_before(ring: &Ring, query: &ReadQuery, offset: u64) -> LineNo {
    let (mut before, mut behind) = (ring.last_gone(query.selection).value(), ring.newest().value() + 1);
    while behind - before > 1 {
        let middle = before + (behind - before) / 2;
        let end = ring.extent(LineNo::new(middle), query.selection, (query.unit, query.render));
        if end <= offset { before = middle } else { behind = middle }
    }
    LineNo::new(before)
}

/// The lines from `offset` on, and how much of the first one to skip.
fn lines_from<'a>(ring: &'a Ring, query: &ReadQuery, offset: u64) -> (usize, impl Iterator<Item = Line<'a>>) {
    let before = line_before(ring, query, offset);
    let skip = offset.saturating_sub(ring.extent(before, query.selection, (query.unit, query.render)));
    (usize::try_from(skip).unwrap_or(usize::MAX), ring.lines_after(before, query.selection))
}

fn lines(ring: &Ring, query: &ReadQuery, offset: u64) -> Vec<PageLine> {
    let mut budget = Budget::new(query.max_bytes);
    let (_, found) = lines_from(ring, query, offset);
    let mut lines = Vec::new();
    for line in found.take(query.length) {
        let rendered = PageLine::of(&line, query.render);
        if !budget.spend(rendered.cost(&line) + 1) && !lines.is_empty() {
            break;
        }
        lines.push(rendered);
    }
    lines
}

fn chars(ring: &Ring, query: &ReadQuery, offset: u64) -> String {
    let (mut skip, found) = lines_from(ring, query, offset);
    let (mut wanted, mut text) = (query.length, String::new());
    for line in found {
        let rendered = line.render(query.render);
        let whole = rendered.chars().chain(line.line_end(query.render).chars());
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
