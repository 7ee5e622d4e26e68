//! Cuts lines that are longer than the limit into pieces, which become continuations.

use memchr::memrchr;

use super::line_end::LineEnd;
use super::ring::Ring;
use super::track::Track;
use crate::render::is_plain;
use crate::{Stream, Timestamp};

/// Whether a text is shown unchanged: printable ASCII and tabs only, and no line longer than
/// `line_bytes`.
pub fn is_verbatim(text: &[u8], line_bytes: usize) -> bool {
    let mut rest = text;
    // One byte more than a line, because its LF does not count.
    while let Some(head) = rest.get(..=line_bytes) {
        match memrchr(b'\n', head) {
            Some(at) => rest = &rest[at + 1..],
            None => return false,
        }
    }
    is_plain(text, b'\n')
}

impl Ring {
    /// Cuts pieces off the unfinished line before `until` until the rest is short enough.
    pub(crate) fn cut_overlong(&mut self, stream: Stream, until: u64, at: Timestamp) {
        let max = self.limits.line_bytes;
        while until - self.track(stream).open() > max as u64 {
            let end = self.track(stream).cut_position(max);
            self.close_line(stream, end, LineEnd::Cut, at);
        }
    }
}

impl Track {
    /// Position at which to cut the unfinished line, after at most `max` bytes and between UTF-8
    /// sequences.
    fn cut_position(&self, max: usize) -> u64 {
        let limit = self.open() + max as u64;
        // A UTF-8 sequence has at most 4 bytes: one that crosses the limit starts in the last 3.
        let sequence = (1..=3.min(max as u64 - 1))
            .map(|back| limit - back)
            .find(|&at| self.bytes[self.index(at)] & 0b1100_0000 != 0b1000_0000);
        match sequence {
            Some(lead) if lead + utf8_len(self.bytes[self.index(lead)]) > limit => lead,
            // The last sequence ends here, or the text is not UTF-8.
            Some(_) | None => limit,
        }
    }
}

/// Length in bytes of the UTF-8 sequence that starts with `lead`.
fn utf8_len(lead: u8) -> u64 {
    match lead {
        0xF0..=0xF7 => 4,
        0xE0..=0xEF => 3,
        0xC0..=0xDF => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_short_plain_lines_is_shown_as_it_is() {
        assert!(is_verbatim(b"", 3));
        assert!(is_verbatim(b"abc\n\na\tb\nabc", 3));
        assert!(!is_verbatim(b"abc\nabcd\n", 3));
        assert!(!is_verbatim(b"abc\nabcd", 3));
        for odd in ["\r", "\x1b", "é", "\x00"] {
            assert!(!is_verbatim(format!("a\n{odd}\n").as_bytes(), 3), "{odd:?}");
        }
    }
}
