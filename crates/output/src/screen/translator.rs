//! Rewrites sequences that `vt100` lacks, or performs without a limit. Follows the states of its parser
//! (`vte`) exactly: a sequence that only one of the two sees would pass unchanged.
//!
//! - The line-drawing character set (DEC Special Graphics), with which programs in a locale without
//!   UTF-8 draw boxes: `ESC ( 0` or `ESC ) 0` loads it as G0 or G1, `ESC ( B` loads ASCII, and the
//!   control characters SO and SI choose G1 or G0. While it is chosen, the bytes from `` ` `` to `~`
//!   become the UTF-8 of the characters they stand for.
//! - IND (`ESC D`) and NEL (`ESC E`), which move to the next line.
//! - REP (`CSI n b`) repeats the last character n times, and `vt100` sets no limit: eight bytes of output
//!   would draw 65,535 characters. Programs fill a part of a row with REP, so n is limited to the number
//!   of columns.

use std::borrow::Cow;

const ESCAPE: u8 = 0x1b;
const BELL: u8 = 0x07;
const SHIFT_OUT: u8 = 0x0e;
const SHIFT_IN: u8 = 0x0f;
const CANCEL: u8 = 0x18;
const SUBSTITUTE: u8 = 0x1a;

/// The characters from `` ` `` to `~`.
const GRAPHICS: [char; 31] = [
    '◆', '▒', '␉', '␌', '␍', '␊', '°', '±', '␤', '␋', '┘', '┐', '┌', '└', '┼', '⎺', '⎻', '─', '⎼',
    '⎽', '├', '┤', '┴', '┬', '│', '≤', '≥', 'π', '≠', '£', '·',
];

/// Translates a stream of output, in any division into pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Translator {
    state: TranslatorState,
    /// Whether G0 and G1 are the line-drawing set.
    g0_draws: bool,
    g1_draws: bool,
    /// Whether SO has chosen G1.
    is_shifted: bool,
    /// Bytes at the end of the output whose sequence or character is not complete.
    unfinished: u64,
}

/// What a byte of output means to the screen.
enum Meaning {
    Itself,
    /// A line-drawing character.
    Graphic(char),
    /// The last byte of a sequence that these controls perform.
    Movement(&'static [u8]),
    /// The last byte of REP, with its count. `None` if the sequence is not a plain `CSI n b`; it is then
    /// dropped.
    Repeat(Option<u16>),
}

/// Position within a sequence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TranslatorState {
    #[default]
    Text,
    /// After ESC.
    Escape,
    /// After `ESC (`.
    LoadsG0,
    /// After `ESC )`.
    LoadsG1,
    /// After ESC and another intermediate byte.
    Intermediate,
    /// Within a control sequence, with its number so far. `None` once anything but digits has followed.
    Csi(Option<u16>),
    /// Within a string, such as a title. ESC ends it.
    String,
}

impl Translator {
    /// Translates the next piece of output, for a screen of this many columns.
    pub(super) fn translate<'a>(&mut self, output: &'a [u8], cols: u16) -> Cow<'a, [u8]> {
        // Fast path for nearly all output: no escape sequence, no SO or SI that has an effect, and no
        // line-drawing set loaded.
        let is_plain = self.state == TranslatorState::Text
            && !self.is_shifted
            && !self.g0_draws
            && !self.g1_draws;
        if is_plain && memchr::memchr2(ESCAPE, SHIFT_OUT, output).is_none() {
            self.unfinished = unfinished_character(output);
            return Cow::Borrowed(output);
        }
        let mut translated = Vec::with_capacity(output.len());
        for &byte in output {
            match self.take(byte) {
                Meaning::Itself => translated.push(byte),
                Meaning::Graphic(graphic) => {
                    translated.extend_from_slice(graphic.encode_utf8(&mut [0; 4]).as_bytes());
                }
                Meaning::Movement(controls) => {
                    // `vt100` has already received the ESC. It ignores `ESC D` and `ESC E`.
                    translated.push(byte);
                    translated.extend_from_slice(controls);
                }
                Meaning::Repeat(count) => {
                    // `vt100` has already received `CSI n`: CAN cancels it.
                    translated.push(CANCEL);
                    if let Some(count) = count {
                        let limited = format!("\x1b[{}b", count.min(cols));
                        translated.extend_from_slice(limited.as_bytes());
                    }
                }
            }
            self.unfinished = if self.state == TranslatorState::Text {
                0
            } else {
                self.unfinished + 1
            };
        }
        if self.state == TranslatorState::Text {
            self.unfinished = unfinished_character(output);
        }
        Cow::Owned(translated)
    }

    /// Number of bytes at the end of the output whose sequence or character is not complete: a
    /// terminal that continues after them would show their rest as text.
    pub(super) fn unfinished(&self) -> u64 {
        self.unfinished
    }

    fn take(&mut self, byte: u8) -> Meaning {
        self.state = match (self.state, byte) {
            (_, ESCAPE) => TranslatorState::Escape,
            (_, CANCEL | SUBSTITUTE) => TranslatorState::Text,
            (TranslatorState::Text, _) => return self.text(byte),
            (TranslatorState::String, BELL) => TranslatorState::Text,
            (TranslatorState::String, _) => TranslatorState::String,
            // Other control characters within a sequence are performed or ignored, and it continues.
            (_, 0x00..=0x1f | 0x7f..=0xff) => self.state,
            (TranslatorState::Escape, b'[') => TranslatorState::Csi(Some(0)),
            (TranslatorState::Escape, b']' | b'P' | b'X' | b'^' | b'_') => TranslatorState::String,
            (TranslatorState::Escape, b'(') => TranslatorState::LoadsG0,
            (TranslatorState::Escape, b')') => TranslatorState::LoadsG1,
            (TranslatorState::Escape | TranslatorState::Intermediate, b' '..=b'/') => {
                TranslatorState::Intermediate
            }
            (TranslatorState::Escape, b'D') => {
                self.state = TranslatorState::Text;
                return Meaning::Movement(b"\n");
            }
            (TranslatorState::Escape, b'E') => {
                self.state = TranslatorState::Text;
                return Meaning::Movement(b"\r\n");
            }
            (TranslatorState::Escape, b'c') => {
                *self = Self::default();
                TranslatorState::Text
            }
            (TranslatorState::LoadsG0, set) => {
                self.g0_draws = set == b'0';
                TranslatorState::Text
            }
            (TranslatorState::LoadsG1, set) => {
                self.g1_draws = set == b'0';
                TranslatorState::Text
            }
            (TranslatorState::Csi(Some(number)), b'0'..=b'9') => {
                let digit = u16::from(byte - b'0');
                TranslatorState::Csi(Some(number.saturating_mul(10).saturating_add(digit)))
            }
            (TranslatorState::Csi(number), b'b') => {
                self.state = TranslatorState::Text;
                return Meaning::Repeat(number);
            }
            (TranslatorState::Csi(_), b'@'..=b'~') => TranslatorState::Text,
            (TranslatorState::Csi(_), _) => TranslatorState::Csi(None),
            (TranslatorState::Escape | TranslatorState::Intermediate, _) => TranslatorState::Text,
        };
        Meaning::Itself
    }

    fn text(&mut self, byte: u8) -> Meaning {
        match byte {
            SHIFT_OUT => self.is_shifted = true,
            SHIFT_IN => self.is_shifted = false,
            _ => {}
        }
        let draws = if self.is_shifted {
            self.g1_draws
        } else {
            self.g0_draws
        };
        let index = byte.checked_sub(b'`').map(usize::from);
        match index.and_then(|index| GRAPHICS.get(index)) {
            Some(graphic) if draws => Meaning::Graphic(*graphic),
            Some(_) | None => Meaning::Itself,
        }
    }
}

/// Number of bytes at the end that start an incomplete UTF-8 sequence.
fn unfinished_character(output: &[u8]) -> u64 {
    // A sequence has at most 4 bytes, so an incomplete one has at most 3.
    let tail = &output[output.len().saturating_sub(3)..];
    let Some(lead) = tail.iter().rposition(|&byte| byte >= 0xC0) else {
        return 0;
    };
    match std::str::from_utf8(&tail[lead..]) {
        Err(error) if error.error_len().is_none() => (tail.len() - lead) as u64,
        Ok(_) | Err(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn translated(pieces: &[&str]) -> String {
        let mut translator = Translator::default();
        let bytes: Vec<u8> = pieces
            .iter()
            .flat_map(|piece| translator.translate(piece.as_bytes(), 80).into_owned())
            .collect();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn letters_are_lines_while_the_set_is_chosen() {
        assert_eq!(translated(&["l\x1b(0lqk\x1b(Bl"]), "l\x1b(0┌─┐\x1b(Bl");
        assert_eq!(translated(&["\x1b)0x\x0ex\x0fx"]), "\x1b)0x\x0e│\x0fx");
    }

    #[test]
    fn sequences_and_titles_are_left_alone_in_any_division() {
        let text = "\x1b(0\x1b[1;31mq\x1b]0;qqq\x07q\x1bPqqq\x1b\\q";
        let whole = translated(&[text]);
        assert_eq!(whole, "\x1b(0\x1b[1;31m─\x1b]0;qqq\x07─\x1bPqqq\x1b\\─");
        for cut in 1..text.len() {
            let (start, end) = text.split_at(cut);
            assert_eq!(translated(&[start, end]), whole, "cut at {cut}");
        }
    }

    #[test]
    fn index_and_next_line_move_as_the_controls_do() {
        assert_eq!(translated(&["a\x1bDb\x1bEc"]), "a\x1bD\nb\x1bE\r\nc");
        assert_eq!(translated(&["a\x1b", "D"]), "a\x1bD\n");
    }

    #[test]
    fn a_character_is_repeated_for_a_row_at_most() {
        assert_eq!(translated(&["=\x1b[79b"]), "=\x1b[79\x18\x1b[79b");
        assert_eq!(translated(&["=\x1b[6", "5535b"]), "=\x1b[65535\x18\x1b[80b");
        assert_eq!(
            translated(&["=\x1b[99999999b"]),
            "=\x1b[99999999\x18\x1b[80b"
        );
        assert_eq!(translated(&["=\x1b[b"]), "=\x1b[\x18\x1b[0b");
        // `vt100` would ignore the second parameter and repeat it 65,535 times.
        assert_eq!(translated(&["=\x1b[65535;1bq"]), "=\x1b[65535;1\x18q");
    }

    #[test]
    fn a_set_that_was_left_in_another_piece_is_left() {
        for divided in [["\x0e", "\x0f", "\x1b)0q"].as_slice(), &["\x0e\x0f\x1b)0q"]] {
            assert!(translated(divided).ends_with('q'), "{divided:?}");
        }
    }

    /// The largest count of REP that `vt100`'s parser sees.
    #[derive(Default)]
    struct LargestRepeat(u16);

    impl vte::Perform for LargestRepeat {
        fn csi_dispatch(
            &mut self,
            parameters: &vte::Params,
            intermediates: &[u8],
            _: bool,
            action: char,
        ) {
            if action == 'b' && intermediates.is_empty() {
                let count = parameters.iter().next().map_or(0, |values| values[0]);
                self.0 = self.0.max(count);
            }
        }
    }

    /// Bytes that change the state of a parser, and those of REP.
    const PIECES: [&[u8]; 18] = [
        b"\x1b", b"[", b"b", b"65535", b"9", b";", b":", b"?", b" ", b"]", b"P", b"X", b"\\",
        b"\x07", b"\x18", b"\0", b"\x7f", b"\x9c",
    ];

    proptest! {
        #[test]
        fn no_count_above_the_columns_reaches_the_parser(
            pieces in proptest::collection::vec(proptest::sample::select(PIECES.as_slice()), 1..40),
            cut in 0_usize..60,
        ) {
            let output = pieces.concat();
            let (start, end) = output.split_at(cut.min(output.len()));
            let mut translator = Translator::default();
            let mut parser = vte::Parser::new();
            let mut largest = LargestRepeat::default();

            for piece in [start, end] {
                parser.advance(&mut largest, &translator.translate(piece, 80));
            }

            prop_assert!(largest.0 <= 80, "{}", largest.0);
        }
    }

    #[test]
    fn sequences_that_begin_oddly_are_followed() {
        for odd in [
            b"=\x1b]\x1b[65535b".as_slice(),
            b"=\x1b\0[65535b",
            b"=\x1b\xff[65535b",
        ] {
            let translated = Translator::default().translate(odd, 80).into_owned();
            assert!(
                translated.ends_with(b"\x18\x1b[80b"),
                "{}",
                odd.escape_ascii()
            );
        }
    }

    #[test]
    fn what_is_not_complete_is_counted() {
        let unfinished = |text: &[u8]| {
            let mut translator = Translator::default();
            translator.translate(text, 80);
            translator.unfinished()
        };
        assert_eq!(unfinished(b"text"), 0);
        assert_eq!(unfinished(b"text\x1b[1;3"), 5);
        assert_eq!(unfinished(b"\x1b[1mtext\x1b]0;ti"), 6);
        assert_eq!(unfinished(b"\x1b[1mtext"), 0);
        assert_eq!(unfinished(b"a\xe6\xbc"), 2);
    }

    #[test]
    fn a_reset_chooses_ascii() {
        assert_eq!(translated(&["\x1b(0\x1bcq"]), "\x1b(0\x1bcq");
    }
}
