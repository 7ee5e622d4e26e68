use std::borrow::Cow;

use vte::{Parser, Perform};

/// How the bytes of a line become text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Render {
    /// What a person would have seen, safe to show anywhere; see [`clean`].
    #[default]
    Clean,
    /// The text as it came; invalid UTF-8 becomes U+FFFD.
    Raw,
}

/// The text of a line.
pub fn render(line: &[u8], render: Render) -> Cow<'_, str> {
    match render {
        Render::Clean => clean(line),
        Render::Raw => String::from_utf8_lossy(line),
    }
}

/// What is left of a line when everything that steers a terminal or reorders text is taken away.
///
/// Escape sequences (CSI, OSC, DCS …), C0 and C1 controls except tab, bidi and tag characters go. Of frames that a bare
/// CR overwrites, as progress bars print them, the last one that shows anything stays. Invalid UTF-8 becomes U+FFFD.
/// A line stands for itself: a sequence left open at its end reaches no further.
pub fn clean(line: &[u8]) -> Cow<'_, str> {
    if is_plain(line) {
        return String::from_utf8_lossy(line);
    }
    let mut view = CleanView { text: String::with_capacity(line.len()), overwrite: false };
    Parser::new().advance(&mut view, line);
    if ends_inside_a_character(line) {
        view.show(char::REPLACEMENT_CHARACTER);
    }
    Cow::Owned(view.text)
}

/// Whether a line is printable ASCII and tabs. Looks at every byte, which compilers do many at a time.
fn is_plain(line: &[u8]) -> bool {
    line.iter().fold(true, |plain, &byte| plain & ((byte == b'\t') | (byte.wrapping_sub(b' ') < 0x5f)))
}

/// Whether a character may be shown: no control (C0, DEL, C1), bidi or tag character.
pub(super) fn is_harmless(c: char) -> bool {
    !matches!(c,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        | '\u{e0000}'..='\u{e007f}')
}

/// Whether the last bytes begin a UTF-8 sequence that does not end; the parser would wait for the rest.
fn ends_inside_a_character(line: &[u8]) -> bool {
    let tail = &line[line.len().saturating_sub(3)..];
    let Some(lead) = tail.iter().rposition(|&byte| byte >= 0xC0) else { return false };
    std::str::from_utf8(&tail[lead..]).is_err_and(|error| error.error_len().is_none())
}

struct CleanView {
    text: String,
    /// A CR has come: what is shown next begins a new frame.
    overwrite: bool,
}

impl CleanView {
    fn show(&mut self, c: char) {
        if std::mem::take(&mut self.overwrite) {
            self.text.clear();
        }
        self.text.push(c);
    }
}

impl Perform for CleanView {
    fn print(&mut self, c: char) {
        if is_harmless(c) {
            self.show(c);
        }
    }

    fn execute(&mut self, byte: u8) {
        match byte {
            b'\t' => self.show('\t'),
            b'\r' => self.overwrite = true,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_and_tabs_stay() {
        assert_eq!(clean(b"a\tb ~"), "a\tb ~");
        assert_eq!(clean("naïve 日本 👍".as_bytes()), "naïve 日本 👍");
    }

    #[test]
    fn escape_sequences_go() {
        assert_eq!(clean(b"\x1b[1;31mred\x1b[0m"), "red");
        assert_eq!(clean(b"\x1b]0;title\x07text"), "text");
        assert_eq!(clean(b"\x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\"), "link");
        assert_eq!(clean(b"a\x1b]52;c;aGk=\x07b"), "ab");
        assert_eq!(clean(b"a\x1bP1$rnever ends"), "a");
    }

    #[test]
    fn controls_bidi_and_tag_characters_go() {
        assert_eq!(clean(b"a\x00b\x07c\x7fd"), "abcd");
        assert_eq!(clean("a\u{202e}b\u{2066}c\u{e0041}d\u{85}e".as_bytes()), "abcde");
    }

    #[test]
    fn the_last_frame_of_a_progress_bar_stays() {
        assert_eq!(clean(b"10%\r50%\r100%"), "100%");
        assert_eq!(clean(b"10%\r\x1b[Kdone"), "done");
        assert_eq!(clean(b"100%\r"), "100%");
    }

    #[test]
    fn invalid_utf8_becomes_the_replacement_character() {
        assert_eq!(clean(b"a\xffb"), "a\u{fffd}b");
        assert_eq!(clean(b"a\xe2\x82"), "a\u{fffd}");
    }

    #[test]
    fn raw_keeps_everything_that_is_text() {
        assert_eq!(render(b"\x1b[1mx\ry", Render::Raw), "\x1b[1mx\ry");
    }
}
