//! Selects lines of a file that arrives in pieces, within a number of bytes.

use std::collections::VecDeque;

/// Lines of a file, selected by position. Pure.
pub(super) struct FileLines {
    wanted: LineSelection,
    length: u64,
    max_bytes: usize,
    /// Lines before the ones that are kept.
    skipped: u64,
    kept: VecDeque<Vec<u8>>,
    kept_bytes: usize,
    /// The line that has begun.
    unfinished: Vec<u8>,
    has_more: bool,
}

enum LineSelection {
    /// From this line on.
    From(u64),
    /// The last lines.
    Last(u64),
}

/// The selected lines.
pub(super) struct SelectedLines {
    pub(super) bytes: Vec<u8>,
    /// Lines before the first one.
    pub(super) offset: u64,
    pub(super) returned: u64,
    pub(super) has_more: bool,
}

impl FileLines {
    /// A negative offset counts from the end.
    pub(super) fn new(offset: i64, length: u64, max_bytes: u64) -> Self {
        let wanted = if offset < 0 {
            LineSelection::Last(offset.unsigned_abs())
        } else {
            LineSelection::From(offset.unsigned_abs())
        };
        Self {
            wanted,
            length,
            max_bytes: usize::try_from(max_bytes).unwrap_or(usize::MAX),
            skipped: 0,
            kept: VecDeque::new(),
            kept_bytes: 0,
            unfinished: Vec::new(),
            has_more: false,
        }
    }

    pub(super) fn push(&mut self, piece: &[u8]) {
        for part in piece.split_inclusive(|byte| *byte == b'\n') {
            // One byte more than can be returned shows that the line is longer.
            let room = self.max_bytes.saturating_add(1).saturating_sub(self.unfinished.len());
            self.unfinished.extend_from_slice(&part[..part.len().min(room)]);
            if part.ends_with(b"\n") {
                let line = std::mem::take(&mut self.unfinished);
                self.add(line);
            }
        }
    }

    /// Whether reading can stop: all wanted lines are kept, and a later line was seen.
    pub(super) fn is_complete(&self) -> bool {
        self.has_more
    }

    pub(super) fn finish(mut self) -> SelectedLines {
        let last = std::mem::take(&mut self.unfinished);
        if !last.is_empty() {
            self.add(last);
        }
        // Of the last lines, the first `length` are wanted.
        let length = usize::try_from(self.length).unwrap_or(usize::MAX);
        if self.kept.len() > length {
            self.kept.truncate(length);
            self.has_more = true;
        }
        let returned = self.kept.len() as u64;
        let mut bytes: Vec<u8> = self.kept.into_iter().flatten().collect();
        if bytes.len() > self.max_bytes {
            // A single line that is too long.
            bytes.truncate(self.max_bytes);
            self.has_more = true;
        }
        SelectedLines {
            bytes,
            offset: self.skipped,
            returned,
            has_more: self.has_more,
        }
    }

    fn add(&mut self, line: Vec<u8>) {
        match self.wanted {
            LineSelection::From(first) if self.skipped < first => self.skipped += 1,
            LineSelection::From(_) => {
                let is_full = self.kept.len() as u64 >= self.length
                    || (self.kept_bytes + line.len() > self.max_bytes && !self.kept.is_empty());
                if is_full || self.has_more {
                    self.has_more = true;
                    return;
                }
                self.keep(line);
            }
            LineSelection::Last(count) => {
                self.keep(line);
                while self.kept.len() as u64 > count
                    || (self.kept_bytes > self.max_bytes && self.kept.len() > 1)
                {
                    let first = self.kept.pop_front().unwrap_or_default();
                    self.kept_bytes -= first.len();
                    self.skipped += 1;
                }
            }
        }
    }

    fn keep(&mut self, line: Vec<u8>) {
        self.kept_bytes += line.len();
        self.kept.push_back(line);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(offset: i64, length: u64, max_bytes: u64) -> (String, u64, u64, bool) {
        let mut lines = FileLines::new(offset, length, max_bytes);
        for piece in ["on", "e\ntwo\nth", "ree\nfour"] {
            lines.push(piece.as_bytes());
        }
        let selected = lines.finish();
        let text = String::from_utf8(selected.bytes).unwrap();
        (text, selected.offset, selected.returned, selected.has_more)
    }

    #[test]
    fn lines_are_selected_from_the_start_or_the_end() {
        let text = |text: &str| text.to_owned();
        let all = u64::MAX;
        assert_eq!(
            select(0, all, 100),
            (text("one\ntwo\nthree\nfour"), 0, 4, false)
        );
        assert_eq!(select(1, 2, 100), (text("two\nthree\n"), 1, 2, true));
        assert_eq!(select(-1, all, 100), (text("four"), 3, 1, false));
        assert_eq!(select(-3, 1, 100), (text("two\n"), 1, 1, true));
        assert_eq!(select(9, all, 100), (text(""), 4, 0, false));
    }

    #[test]
    fn bytes_are_limited_by_whole_lines_unless_one_is_too_long() {
        let text = |text: &str| text.to_owned();
        assert_eq!(select(0, 9, 8), (text("one\ntwo\n"), 0, 2, true));
        assert_eq!(select(-9, 9, 8), (text("four"), 3, 1, false));
        assert_eq!(select(0, 9, 2), (text("on"), 0, 1, true));
    }
}
