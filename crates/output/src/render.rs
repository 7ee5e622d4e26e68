//! Makes remote bytes safe to show. Lines are independent of each other.

use std::borrow::Cow;

use vte::{Params, Parser, Perform};

/// How the bytes of a line become text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Render {
    /// As a person would see it, safe to show anywhere; see [`clean`].
    #[default]
    Clean,
    /// Unchanged, except that invalid UTF-8 becomes U+FFFD.
    Raw,
}

/// Renders a text of several lines, each line separately.
pub fn render(text: &[u8], render: Render) -> Cow<'_, str> {
    match render {
        Render::Raw => String::from_utf8_lossy(text),
        Render::Clean if !text.contains(&b'\n') => clean(text),
        Render::Clean => {
            Cow::Owned(text.split(|&byte| byte == b'\n').map(clean).collect::<Vec<_>>().join("\n"))
        }
    }
}

/// A text without everything that controls a terminal or reorders text.
///
/// Removes escape sequences (CSI, OSC, DCS …), C0 and C1 controls except tab, and bidi, tag and
/// other invisible characters. Of frames that a bare CR overwrites, as progress bars print them,
/// keeps the last one with visible text, after GitLab's section marks if there are any. Invalid UTF-8 becomes U+FFFD. Lines are independent: a
/// sequence left open at the end of a line does not affect the next.
pub fn clean(line: &[u8]) -> Cow<'_, str> {
    clean_after(OpenEscape::None, line)
}

/// Like [`clean`], for the rest of a line that was cut inside an escape sequence.
pub(super) fn clean_after(escape: OpenEscape, line: &[u8]) -> Cow<'_, str> {
    if escape == OpenEscape::None
        && let Some(text) = harmless_text(line)
    {
        return Cow::Borrowed(text);
    }
    let mut view = CleanView {
        text: String::with_capacity(line.len()),
        overwrite: false,
        marks: 0,
    };
    let mut parser = Parser::new();
    parser.advance(&mut view, escape.introducer());
    parser.advance(&mut view, line);
    // Bytes of an open escape sequence are not text, so none is cut.
    if ends_inside_a_character(line) && escape.after(line) == OpenEscape::None {
        view.show(char::REPLACEMENT_CHARACTER);
    }
    Cow::Owned(view.text)
}

/// The line itself, if there is nothing to remove from it.
pub(super) fn harmless_text(line: &[u8]) -> Option<&str> {
    // Fast for most lines. Only the others need the test of each character below.
    let plain = is_plain(line, b'\t');
    let text = std::str::from_utf8(line).ok()?;
    (plain || text.chars().all(|c| c == '\t' || is_harmless(c))).then_some(text)
}

/// Whether a text is printable ASCII, tabs, and perhaps one other byte. It examines every byte in a
/// form that compilers vectorize, which is faster than stopping early.
pub(super) fn is_plain(text: &[u8], other: u8) -> bool {
    text.iter().fold(0, |any, &byte| {
        // True outside of space to `~`: bytes below the space wrap around to large ones.
        let is_odd = u8::from(byte.wrapping_sub(b' ') >= 0x5f)
            & u8::from(byte != b'\t')
            & u8::from(byte != other);
        any | is_odd
    }) == 0
}

/// The escape sequence that is open at the end of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OpenEscape {
    /// None.
    #[default]
    None,
    /// ESC, without a following byte.
    Started,
    /// A control sequence.
    Csi,
    /// An operating system command.
    Osc,
    /// A device control string, before its data.
    DcsHeader,
    /// A device control string, within its data.
    Dcs,
    /// Another string that ends with ST: SOS, PM, APC, or a malformed DCS.
    OtherString,
}

impl OpenEscape {
    const ALL: [Self; 7] = [
        Self::None,
        Self::Started,
        Self::Csi,
        Self::Osc,
        Self::DcsHeader,
        Self::Dcs,
        Self::OtherString,
    ];

    /// A number for it, to be stored.
    pub fn code(self) -> u8 {
        // Stored in logs, so the order of the variants must not change.
        self as u8
    }

    /// The one with this number.
    pub fn of_code(code: u8) -> Option<Self> {
        Self::ALL.get(usize::from(code)).copied()
    }

    /// Bytes that bring a parser into this state.
    fn introducer(self) -> &'static [u8] {
        match self {
            Self::None => b"",
            Self::Started => b"\x1b",
            Self::Csi => b"\x1b[",
            Self::Osc => b"\x1b]",
            Self::DcsHeader => b"\x1bP",
            Self::Dcs => b"\x1bPq",
            Self::OtherString => b"\x1bX",
        }
    }

    /// The escape sequence that is open after `text`. The parser does not reveal its state, so
    /// probes find it: each state reacts to letters and BEL in its own way. (Exact for well-formed
    /// sequences; a malformed one may end a little earlier or later.)
    pub(super) fn after(self, text: &[u8]) -> Self {
        let mut parser = Parser::new();
        let mut witness = Witness(None);
        parser.advance(&mut witness, self.introducer());
        parser.advance(&mut witness, text);
        // The first `q` reveals most states, the second that the first has ended a CSI, and BEL an OSC.
        for (probe, silent) in [(b'q', Self::None), (b'q', Self::Csi), (b'\x07', Self::Osc)] {
            witness.0 = None;
            parser.advance(&mut witness, &[probe]);
            match witness.0 {
                // Printed as text: no sequence is open. The previous probe has ended `silent`.
                Some(Self::None) => return silent,
                Some(seen) => return seen,
                None => {}
            }
        }
        Self::OtherString
    }
}

/// The parser's first callback reveals its previous state.
struct Witness(Option<OpenEscape>);

impl Witness {
    fn see(&mut self, escape: OpenEscape) {
        self.0.get_or_insert(escape);
    }
}

impl Perform for Witness {
    fn print(&mut self, _: char) {
        self.see(OpenEscape::None);
    }

    fn hook(&mut self, _: &Params, _: &[u8], _: bool, _: char) {
        self.see(OpenEscape::DcsHeader);
    }

    fn put(&mut self, _: u8) {
        self.see(OpenEscape::Dcs);
    }

    fn osc_dispatch(&mut self, _: &[&[u8]], _: bool) {
        self.see(OpenEscape::Osc);
    }

    fn esc_dispatch(&mut self, _: &[u8], _: bool, _: u8) {
        self.see(OpenEscape::Started);
    }
}

/// Whether a character may be shown. Excludes controls (C0, DEL, C1) and invisible characters such
/// as bidi and tag characters, variation selectors and zero-width characters (Unicode's
/// Default_Ignorable_Code_Point), because they could hide text for a model.
pub(super) fn is_harmless(c: char) -> bool {
    !matches!(c,
        '\u{0}'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{3164}'
        | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fff8}'
        | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' | '\u{e0000}'..='\u{e0fff}')
}

/// Whether the last bytes start an incomplete UTF-8 sequence. The parser would wait for the rest.
pub(super) fn ends_inside_a_character(line: &[u8]) -> bool {
    // A sequence has at most 4 bytes, so an incomplete one has at most 3.
    let tail = &line[line.len().saturating_sub(3)..];
    let Some(lead) = tail.iter().rposition(|&byte| byte >= 0xC0) else {
        return false;
    };
    std::str::from_utf8(&tail[lead..]).is_err_and(|error| error.error_len().is_none())
}

/// Whether a frame is a mark by which GitLab folds output. On a terminal, the next frame overwrites it. Readers get
/// both.
pub(super) fn is_section_mark(frame: &str) -> bool {
    frame.starts_with("section_start:") || frame.starts_with("section_end:")
}

struct CleanView {
    text: String,
    /// After a CR, the next visible text starts a new frame.
    overwrite: bool,
    /// Bytes of the section marks before the frame.
    marks: usize,
}

impl CleanView {
    fn show(&mut self, c: char) {
        if std::mem::take(&mut self.overwrite) {
            if self.text.get(self.marks..).is_some_and(is_section_mark) {
                self.text.push(' ');
                self.marks = self.text.len();
            } else {
                self.text.truncate(self.marks);
            }
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
            // Clears nothing yet: a CR at the end of a line leaves its text visible.
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
    fn a_line_with_nothing_to_remove_is_not_copied() {
        for line in ["a b", "naïve", "naïve\ttext", ""] {
            let rendered = render(line.as_bytes(), Render::Clean);
            assert!(
                matches!(rendered, Cow::Borrowed(text) if text == line),
                "{line}"
            );
        }
    }

    #[test]
    fn plain_text_is_printable_ascii_tabs_and_one_given_byte() {
        assert!(is_plain(b" a~\t\n", b'\n'));
        for odd in ["\n", "\x1f", "\x7f", "é"] {
            assert!(!is_plain(format!("a{odd}b").as_bytes(), b'\t'), "{odd:?}");
        }
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
        assert_eq!(
            clean("a\u{202e}b\u{2066}c\u{e0041}d\u{85}e".as_bytes()),
            "abcde"
        );
        assert_eq!(
            clean("a\u{fe0f}b\u{200b}c\u{e0101}d\u{2063}e\u{feff}f\u{ad}g".as_bytes()),
            "abcdefg"
        );
    }

    #[test]
    fn the_last_frame_of_a_progress_bar_stays() {
        assert_eq!(clean(b"10%\r50%\r100%"), "100%");
        assert_eq!(clean(b"10%\r\x1b[Kdone"), "done");
        assert_eq!(clean(b"100%\r"), "100%");
    }

    #[test]
    fn marks_of_sections_stay_before_the_frame_that_overwrites_them() {
        let lines = [
            (
                &b"\x1b[0Ksection_start:15:build[collapsed=true]\r\x1b[0K\x1b[1mCompile"[..],
                "section_start:15:build[collapsed=true] Compile",
            ),
            (
                b"section_end:16:a\r\x1b[0Ksection_start:17:b\r\x1b[0KTest",
                "section_end:16:a section_start:17:b Test",
            ),
            (b"section_end:18:b\r\x1b[0K", "section_end:18:b"),
            (b"section_start:19:c\r10%\r20%", "section_start:19:c 20%"),
            (
                b"section_start:20:d\r\x1b[31mab\x1b[0mc\rd",
                "section_start:20:d d",
            ),
        ];
        for (line, shown) in lines {
            assert_eq!(clean(line), shown);
            let pieces = crate::styled(line);
            let text: String = pieces.iter().map(|piece| piece.text.as_str()).collect();
            assert_eq!(text, shown);
        }
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

    #[test]
    fn a_text_of_several_lines_is_rendered_line_by_line() {
        assert_eq!(render(b"a\x1b]0;open\nb\rc\r\n", Render::Clean), "a\nc\n");
    }

    #[test]
    fn each_open_escape_sequence_is_recognized() {
        for escape in OpenEscape::ALL {
            assert_eq!(OpenEscape::None.after(escape.introducer()), escape);
            assert_eq!(escape.after(b""), escape);
        }
        assert_eq!(OpenEscape::Csi.after(b"1<"), OpenEscape::Csi);
        assert_eq!(OpenEscape::Dcs.after(b"data"), OpenEscape::Dcs);
        assert_eq!(OpenEscape::Osc.after(b"0;title\x07"), OpenEscape::None);
    }

    #[test]
    fn a_stored_number_names_its_escape_sequence() {
        for escape in OpenEscape::ALL {
            assert_eq!(OpenEscape::of_code(escape.code()), Some(escape));
        }
        assert_eq!(
            (OpenEscape::None.code(), OpenEscape::OtherString.code()),
            (0, 6)
        );
        assert_eq!(OpenEscape::of_code(7), None);
    }

    #[test]
    fn a_cut_line_continues_inside_the_sequence_it_was_cut_in() {
        let text = "a\x1b[1;31mb\x1b]8;;http://x\x07c\x1bP1$rdata\x1b\\d\x1b_apc\x1b\\e\x1b(Bf\x1b[?25h\x1b]52;c;aGk=\x1b\\g".as_bytes();
        let whole = clean(text);
        assert_eq!(whole, "abcdefg");
        for cut in 0..=text.len() {
            let (head, rest) = text.split_at(cut);
            let parts = format!(
                "{}{}",
                clean(head),
                clean_after(OpenEscape::None.after(head), rest)
            );
            assert_eq!(parts, whole, "cut at {cut}");
        }
    }
}
