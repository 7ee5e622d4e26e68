//! One stream's bytes in the ring, and where its lines end.

use std::borrow::Cow;
use std::collections::VecDeque;

use super::checkpoint::Unfinished;
use super::line_end::LineEnd;
use super::marks::{LineKind, RingMark, RingMarks};
use super::origin::Position;
use super::shortfall::Shortfalls;
use crate::render::{clean_after, is_plain};
use crate::{Bytes, LineNo, Measure, MemberNo, OpenEscape, Render, RingLine, Stream, Timestamp};

/// The kept bytes of one stream, and the marks that divide them into lines.
///
/// Bytes after the last mark are the unfinished line. Positions count the stream's bytes from the
/// start of the job, so eviction does not change them.
#[derive(Debug)]
pub(crate) struct Track {
    stream: Stream,
    pub(crate) bytes: VecDeque<u8>,
    marks: RingMarks,
    /// Position of `bytes[0]`. Smaller than `start` while bytes of evicted lines wait to be
    /// overwritten.
    base: u64,
    /// Position of the first byte kept.
    start: u64,
    /// Position after the last mark.
    open: u64,
    /// Set if the unfinished line continues a cut one: the escape sequence in which that was cut.
    cut: Option<OpenEscape>,
    /// The member that prints the unfinished line, in a fleet.
    member: Option<MemberNo>,
    /// Bytes after this position are printable ASCII, tabs and LFs.
    odd_until: u64,
    shortfalls: Shortfalls,
}

impl Track {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            bytes: VecDeque::new(),
            marks: RingMarks::default(),
            base: 0,
            start: 0,
            open: 0,
            cut: None,
            member: None,
            odd_until: 0,
            shortfalls: Shortfalls::default(),
        }
    }

    /// A track that continues after `position` with an unfinished line. Nothing before it is kept.
    pub(crate) fn resumed(stream: Stream, position: &Position, unfinished: &Unfinished) -> Self {
        let Position {
            last_line,
            lines,
            bytes,
            raw_chars,
            clean_chars,
        } = *position;
        let is_odd = !is_plain(&unfinished.bytes, b'\n');
        Self {
            bytes: unfinished.bytes.iter().copied().collect(),
            base: bytes,
            start: bytes,
            open: bytes,
            cut: unfinished.cut,
            odd_until: if is_odd {
                bytes + unfinished.bytes.len() as u64
            } else {
                bytes
            },
            // Earlier lines count as evicted, so that positions count from the start of the job.
            marks: RingMarks::resumed(lines, last_line),
            shortfalls: Shortfalls::resumed(bytes, bytes - raw_chars, bytes - clean_chars),
            ..Self::new(stream)
        }
    }

    /// The position after the last finished line.
    pub(crate) fn position(&self) -> Position {
        Position {
            last_line: self.marks.newest(),
            lines: self.marks.total(),
            bytes: self.open,
            raw_chars: self.shortfalls.chars_until(self.open, Render::Raw),
            clean_chars: self.shortfalls.chars_until(self.open, Render::Clean),
        }
    }

    /// The unfinished line, which starts at [`position`](Self::position).
    pub(crate) fn unfinished(&self) -> Unfinished {
        Unfinished {
            bytes: self.partial().into_owned(),
            cut: self.cut,
        }
    }

    /// Appends `chunk` unchanged; `close_line` divides it. The storage never grows beyond `bound`
    /// bytes.
    pub(crate) fn extend(&mut self, member: Option<MemberNo>, chunk: &[u8], bound: usize) {
        self.member = member;
        // First, so that evicted lines make room before the storage grows.
        self.release();
        let needed = self.bytes.len() + chunk.len();
        if needed > self.bytes.capacity() {
            // Not left to `VecDeque`, which doubles its storage and could exceed `bound`.
            let grown = needed.max(self.bytes.capacity() * 2).min(bound.max(needed));
            self.bytes.reserve_exact(grown - self.bytes.len());
        }
        self.bytes.extend(chunk);
        if !is_plain(chunk, b'\n') {
            self.odd_until = self.end();
        }
    }

    /// Ends the unfinished line at a position, including its terminator.
    pub(crate) fn close_line(&mut self, line_no: LineNo, end: u64, ending: LineEnd, at: Timestamp) {
        let escape = self.cut.unwrap_or_default();
        let after = self.count_line(end, ending, escape);
        let kind = LineKind {
            at,
            ending,
            continuation: self.cut.is_some(),
            escape,
            member: self.member,
        };
        self.marks.push(RingMark { line_no, end, kind });
        self.open = end;
        self.cut = (ending == LineEnd::Cut).then_some(after);
    }

    /// Whether the unfinished line and all bytes after it are plain text, and it does not continue a cut line.
    pub(crate) fn is_plain_from_open(&self) -> bool {
        self.cut.is_none() && self.open >= self.odd_until
    }

    /// Ends a line at each of these positions, which follow an LF in plain text (see
    /// [`is_plain_from_open`](Self::is_plain_from_open)). The lines get consecutive numbers.
    pub(crate) fn close_plain_lines(
        &mut self,
        first: LineNo,
        ends: impl Iterator<Item = u64>,
        at: Timestamp,
    ) {
        let kind = LineKind {
            at,
            ending: LineEnd::Lf,
            continuation: false,
            escape: OpenEscape::None,
            member: self.member,
        };
        self.marks.push_all(first, ends, kind);
        if let Some(last) = self.marks.len().checked_sub(1) {
            self.open = self.marks.end(last);
        }
    }

    /// Counts the characters of the unfinished line, which ends at `end`, and returns the escape
    /// sequence that it leaves open.
    fn count_line(&mut self, end: u64, ending: LineEnd, escape: OpenEscape) -> OpenEscape {
        // False for a plain line with odd bytes after it in its chunk. That costs only time.
        let is_plain = self.open >= self.odd_until && escape == OpenEscape::None;
        if is_plain && ending != LineEnd::CrLf {
            OpenEscape::None
        } else {
            self.count_odd_line(end, ending, escape)
        }
    }

    /// Counts a line with other bytes than printable ASCII. A separate function, so that plain
    /// lines stay cheap.
    #[inline(never)]
    fn count_odd_line(&mut self, end: u64, ending: LineEnd, escape: OpenEscape) -> OpenEscape {
        let terminator = ending.text().len() as u64;
        let text = self.slice(self.open, end - terminator);
        let raw = String::from_utf8_lossy(&text).chars().count() as u64 + terminator;
        // In the clean view, a CRLF is one character.
        let clean = clean_after(escape, &text).chars().count() as u64 + terminator.min(1);
        // Only the rest of a cut line continues a sequence; other lines are independent.
        let after = if ending == LineEnd::Cut {
            escape.after(&text)
        } else {
            OpenEscape::None
        };
        let bytes = end - self.open;
        self.shortfalls
            .push(end, bytes.saturating_sub(raw), bytes.saturating_sub(clean));
        after
    }

    /// Whether the newest byte kept is a CR.
    pub(crate) fn ends_with_cr(&self) -> bool {
        self.bytes.back() == Some(&b'\r')
    }

    /// Evicts the oldest lines until `wanted` bytes are free, but none from the line `until` on.
    /// Returns the number of lines and bytes evicted.
    pub(crate) fn evict(&mut self, wanted: usize, until: LineNo) -> (usize, usize) {
        let target = self.start.saturating_add(wanted as u64);
        let (lines, end) = self.marks.evict_bytes(target, until);
        (lines, self.begin_at(end))
    }

    /// Evicts up to `count` of the oldest lines, but none from the line `until` on. Returns the number evicted.
    pub(crate) fn evict_lines(&mut self, count: usize, until: LineNo) -> usize {
        let (lines, end) = self.marks.evict_lines(count, until);
        self.begin_at(end);
        lines
    }

    /// Makes `start` the position of the first byte kept, and returns the number of bytes that are evicted by that.
    /// [`release`](Self::release) removes them later, those of many lines at once.
    fn begin_at(&mut self, start: Option<u64>) -> usize {
        let Some(start) = start else { return 0 };
        let freed = start - self.start;
        self.start = start;
        self.shortfalls.evict(start);
        usize::try_from(freed).expect("kept bytes fit into memory")
    }

    /// Removes the bytes of evicted lines, so that their storage can be used again.
    fn release(&mut self) {
        let gone = self.index(self.start);
        self.bytes.drain(..gone);
        self.base = self.start;
    }

    /// Number of evicted lines, and the last of them.
    pub(crate) fn gone(&self) -> (u64, LineNo) {
        self.marks.gone()
    }

    pub(crate) fn oldest(&self) -> Option<LineNo> {
        self.marks.oldest()
    }

    pub(crate) fn line_count(&self) -> usize {
        self.marks.len()
    }

    pub(crate) fn byte_count(&self) -> usize {
        self.bytes.len() - self.index(self.start)
    }

    /// Amount of the stream up to `line_no`, kept or not.
    pub(crate) fn extent(&self, line_no: LineNo, measure: Measure) -> u64 {
        let kept = self.marks.count_until(line_no);
        let end = kept.checked_sub(1).map_or(self.start, |index| self.marks.end(index));
        match measure {
            Measure::Lines => self.marks.gone().0 + kept as u64,
            Measure::Bytes => end,
            Measure::Chars(render) => self.shortfalls.chars_until(end, render),
        }
    }

    /// Allocated bytes, used or not.
    pub(crate) fn footprint(&self) -> usize {
        self.bytes.capacity() + self.marks.footprint() + self.shortfalls.footprint()
    }

    /// Frees unused storage.
    pub(crate) fn shrink(&mut self) {
        self.release();
        self.bytes.shrink_to_fit();
        self.marks.shrink();
        self.shortfalls.shrink();
    }

    /// Position after the last byte received.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// Position of the first byte kept.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Start position of the unfinished line.
    pub(crate) fn open(&self) -> u64 {
        self.open
    }

    /// The unfinished line.
    pub(crate) fn partial(&self) -> Bytes<'_> {
        self.slice(self.open, self.end())
    }

    /// The unfinished line as text.
    pub(crate) fn partial_text(&self, render: Render) -> String {
        match render {
            Render::Clean => {
                clean_after(self.cut.unwrap_or_default(), &self.partial()).into_owned()
            }
            Render::Raw => String::from_utf8_lossy(&self.partial()).into_owned(),
        }
    }

    /// The kept lines after `cursor`, oldest first. Finding the first is a binary search.
    pub(crate) fn lines_after(&self, cursor: LineNo) -> impl Iterator<Item = RingLine<'_>> {
        let first = self.marks.count_until(cursor);
        let mut begin = first.checked_sub(1).map_or(self.start, |before| self.marks.end(before));
        self.marks.iter_from(first).map(move |mark| {
            let line = self.line(begin, mark);
            begin = mark.end;
            line
        })
    }

    /// The line that begins at a position.
    fn line(&self, begin: u64, mark: RingMark) -> RingLine<'_> {
        let RingMark { line_no, end, kind } = mark;
        RingLine {
            line_no,
            stream: self.stream,
            member: kind.member,
            at: kind.at,
            continuation: kind.continuation,
            text: self.slice(begin, end - kind.ending.text().len() as u64),
            terminator: kind.ending.text(),
            escape: kind.escape,
        }
    }

    /// The bytes from one position to another, both within the kept part.
    pub(crate) fn slice(&self, from: u64, to: u64) -> Bytes<'_> {
        let from = self.index(from);
        let to = self.index(to);
        let (head, tail) = self.bytes.as_slices();
        if to <= head.len() {
            Cow::Borrowed(&head[from..to])
        } else if from >= head.len() {
            Cow::Borrowed(&tail[from - head.len()..to - head.len()])
        } else {
            Cow::Owned([&head[from..], &tail[..to - head.len()]].concat())
        }
    }

    pub(crate) fn index(&self, position: u64) -> usize {
        usize::try_from(position - self.base).expect("kept bytes fit into memory")
    }
}
