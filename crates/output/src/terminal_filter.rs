//! Filters output for a terminal: only sequences on a list pass.

use std::collections::BTreeSet;

use vte::{Params, Parser, Perform};

use super::render::{clean, is_harmless};

/// Makes remote output safe for the terminal of the person who reads it.
///
/// Text, line ends, tabs, bare CR, colours (SGR) and "erase in line" pass. Every other control or
/// escape sequence is dropped, so that the host can't retitle, query or reprogram the
/// terminal, nor write its clipboard. The end of a line ends every sequence, so that an open one
/// swallows at most its line. State is kept between chunks: any division of the same bytes gives
/// the same result.
#[derive(Default)]
pub struct TerminalFilter {
    parser: Parser,
    allowed: Allowed,
    /// Terminal modes that differ from their default.
    changed_modes: BTreeSet<u16>,
    /// Character sets, keypad, insert mode or scroll region may differ from their default.
    drawing: bool,
    /// Colours may differ from their default.
    coloured: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Allowed {
    /// Sequences for lines of text.
    #[default]
    Lines,
    /// Sequences for drawing on the whole screen.
    Screen,
}

/// Private modes that a full-screen program may change: cursor keys, wrapping, cursor, alternate
/// screen, bracketed paste.
const MODES: [u16; 9] = [1, 7, 12, 25, 47, 1047, 1048, 1049, 2004];
const ON_BY_DEFAULT: [u16; 2] = [7, 25];

impl TerminalFilter {
    /// A filter for interactive programs: sequences that move the cursor, erase, scroll and switch
    /// the screen pass as well. Clipboard, title and queries are still dropped.
    pub fn for_screen() -> Self {
        Self {
            allowed: Allowed::Screen,
            ..Self::default()
        }
    }

    /// Bytes that restore the terminal if the host stops in the middle: default colours and modes.
    pub fn restore(&mut self) -> Vec<u8> {
        let mut sequence = String::new();
        if std::mem::take(&mut self.coloured) {
            sequence.push_str("\x1b[0m");
        }
        for mode in std::mem::take(&mut self.changed_modes) {
            let action = if ON_BY_DEFAULT.contains(&mode) {
                'h'
            } else {
                'l'
            };
            sequence.push_str(&format!("\x1b[?{mode}{action}"));
        }
        if std::mem::take(&mut self.drawing) {
            // Save the cursor, because resetting the scroll region moves it to the corner.
            sequence.push_str("\x0f\x1b(B\x1b)B\x1b>\x1b[4l\x1b7\x1b[r\x1b8");
        }
        sequence.into_bytes()
    }

    /// The part of the next `chunk` that may be written to the terminal.
    pub fn pass(&mut self, chunk: &[u8]) -> Vec<u8> {
        let bytes = Vec::with_capacity(chunk.len());
        let mut passed = PassedBytes {
            bytes,
            allowed: self.allowed,
            changed_modes: &mut self.changed_modes,
            drawing: &mut self.drawing,
            coloured: &mut self.coloured,
        };
        for piece in chunk.split_inclusive(|&byte| byte == b'\n') {
            let text = piece.strip_suffix(b"\n");
            self.parser.advance(&mut passed, text.unwrap_or(piece));
            if text.is_some() {
                self.parser = Parser::new();
                passed.bytes.push(b'\n');
            }
        }
        passed.bytes
    }
}

impl std::fmt::Debug for TerminalFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TerminalFilter").finish_non_exhaustive()
    }
}

struct PassedBytes<'a> {
    bytes: Vec<u8>,
    allowed: Allowed,
    changed_modes: &'a mut BTreeSet<u16>,
    drawing: &'a mut bool,
    coloured: &'a mut bool,
}

impl PassedBytes<'_> {
    fn control(&mut self, params: &Params, action: char) {
        let mut params: Vec<Vec<u16>> = params.iter().map(<[u16]>::to_vec).collect();
        if action == 'm' {
            // True for some resets, too, such as 39. `restore` then resets once too often.
            *self.coloured = !params.iter().flatten().all(|&param| param == 0);
            show_what_is_hidden(&mut params);
        }
        let params = params
            .iter()
            .map(|subparams: &Vec<u16>| {
                subparams.iter().map(u16::to_string).collect::<Vec<_>>().join(":")
            })
            .collect::<Vec<_>>()
            .join(";");
        self.bytes.extend_from_slice(format!("\x1b[{params}{action}").as_bytes());
    }

    /// Passes allowed modes, one by one, and remembers them.
    fn set_modes(&mut self, params: &Params, action: char) {
        for mode in params.iter().flatten().filter(|mode| MODES.contains(mode)) {
            if ON_BY_DEFAULT.contains(mode) == (action == 'h') {
                self.changed_modes.remove(mode);
            } else {
                self.changed_modes.insert(*mode);
            }
            self.bytes.extend_from_slice(format!("\x1b[?{mode}{action}").as_bytes());
        }
    }
}

/// Replaces SGR 8, which hides text, by 28, which shows it. An 8 that is part of a colour
/// (`38;5;8`) stays.
fn show_what_is_hidden(params: &mut [Vec<u16>]) {
    let mut index = 0;
    while index < params.len() {
        let of_colour = match (
            params[index].as_slice(),
            params.get(index + 1).map(Vec::as_slice),
        ) {
            ([38 | 48 | 58], Some([5])) => 2,
            ([38 | 48 | 58], Some([2])) => 4,
            _ => 0,
        };
        if params[index] == [8] {
            params[index] = vec![28];
        }
        index += 1 + of_colour;
    }
}

impl Perform for PassedBytes<'_> {
    fn print(&mut self, c: char) {
        if is_harmless(c) {
            self.bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    fn execute(&mut self, byte: u8) {
        // A backspace could overwrite text shown before, such as a host's name.
        // SO and SI choose a character set, with which programs draw lines.
        let is_set = matches!(byte, 0x0e | 0x0f);
        let is_of_screens =
            (is_set || matches!(byte, 0x07 | 0x08)) && self.allowed == Allowed::Screen;
        if is_set && is_of_screens {
            *self.drawing = true;
        }
        if is_of_screens || matches!(byte, b'\r' | b'\t') {
            self.bytes.push(byte);
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: char) {
        // Set if there are more parameters than the parser keeps. The others are lost.
        if ignore {
            return;
        }
        match (self.allowed, intermediates, action) {
            // Without c, n, t and x: the terminal would answer, as if the answer had been typed.
            (_, [], 'm' | 'K')
            | (
                Allowed::Screen,
                [],
                '@'..='J'
                | 'L'
                | 'M'
                | 'P'
                | 'S'
                | 'T'
                | 'X'
                | 'Z'
                | '`'
                | 'a'
                | 'b'
                | 'd'..='f'
                | 'r'
                | 's'
                | 'u',
            ) => {
                *self.drawing |= action == 'r';
                self.control(params, action);
            }
            // Insert mode.
            (Allowed::Screen, [], 'h' | 'l') if params.iter().eq([[4]]) => {
                *self.drawing = true;
                self.control(params, action);
            }
            (Allowed::Screen, [b'?'], 'h' | 'l') => self.set_modes(params, action),
            _ => {}
        }
    }

    fn esc_dispatch(&mut self, intermediates: &[u8], ignore: bool, byte: u8) {
        let may_pass = match intermediates {
            // Save and restore the cursor, index, reverse index, next line, keypad modes.
            [] => matches!(byte, b'7' | b'8' | b'D' | b'E' | b'M' | b'=' | b'>'),
            // Choose the character set for line drawing (0) or ASCII (B).
            [b'(' | b')'] => matches!(byte, b'0' | b'B'),
            _ => false,
        };
        if may_pass && !ignore && self.allowed == Allowed::Screen {
            *self.drawing = true;
            self.bytes.push(0x1b);
            self.bytes.extend_from_slice(intermediates);
            self.bytes.push(byte);
        }
    }
}

/// A line for a terminal, like [`clean`], but with the colours of the program. They are reset at the
/// end of the line.
pub fn coloured(line: &[u8]) -> String {
    // Of frames that a bare CR overwrites, the last one with visible text.
    let mut frames = line.rsplit(|&byte| byte == b'\r');
    let frame = frames.find(|frame| !clean(frame).is_empty()).unwrap_or_default();
    let mut filter = TerminalFilter::default();
    let mut shown = filter.pass(frame);
    shown.extend(filter.restore());
    String::from_utf8_lossy(&shown).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(bytes: &[u8]) -> String {
        String::from_utf8(TerminalFilter::default().pass(bytes)).expect("text")
    }

    #[test]
    fn text_and_colours_pass() {
        assert_eq!(
            pass(b"a\r\n\x1b[1;31mred\x1b[0m\tb"),
            "a\r\n\x1b[1;31mred\x1b[0m\tb"
        );
    }

    #[test]
    fn clipboard_title_cursor_and_query_do_not_pass() {
        assert_eq!(pass(b"\x1b[?1049h\x1b[?25l\x1b(0\x1b[5;5Ha"), "a");
        assert_eq!(
            pass(b"a\x1b]52;c;aGk=\x07\x1b]0;t\x07\x1b[2J\x1b[6n\x1bP+q\x1b\\\x05b"),
            "ab"
        );
    }

    #[test]
    fn nothing_is_hidden() {
        assert_eq!(pass(b"\x1b]0;open\nshown\n"), "\nshown\n");
        assert_eq!(pass(b"\x1b[1;8msecret"), "\x1b[1;28msecret");
        assert_eq!(pass(b"\x1b[38;5;8;8mx"), "\x1b[38;5;8;28mx");
        assert_eq!(
            pass(b"\x1b[48;2;8;8;8mx\x1b[38:5:8my"),
            "\x1b[48;2;8;8;8mx\x1b[38:5:8my"
        );
    }

    #[test]
    fn a_sequence_may_be_divided_anywhere() {
        let bytes = "x\x1b[38;5;1mé\x1b]8;;u\x07y\u{202e}z\n".as_bytes();
        for cut in 0..bytes.len() {
            let mut filter = TerminalFilter::default();
            let mut passed = filter.pass(&bytes[..cut]);
            passed.extend(filter.pass(&bytes[cut..]));
            assert_eq!(
                String::from_utf8(passed).unwrap(),
                "x\x1b[38;5;1méyz\n",
                "cut at {cut}"
            );
        }
    }

    #[test]
    fn a_program_may_draw_but_not_ask_or_reach_beyond_the_screen() {
        let mut filter = TerminalFilter::for_screen();
        let drawn =
            "\x1b[?1049h\x1b[2J\x1b[3;4Hx\x1b[9b\x1b[4h\x1b(0q\x1b(B\x0eq\x0f\x1bM\x07\x1b[?25l";
        assert_eq!(filter.pass(drawn.as_bytes()), drawn.as_bytes());
        assert_eq!(
            filter
                .pass(b"\x1b[6n\x1b[c\x1b[?1003h\x1b]0;t\x07\x1b]52;c;aGk=\x07\x1bc\x1bP+q\x1b\\"),
            b""
        );
        assert_eq!(
            filter.restore(),
            b"\x1b[?25h\x1b[?1049l\x0f\x1b(B\x1b)B\x1b>\x1b[4l\x1b7\x1b[r\x1b8"
        );
        assert_eq!(filter.restore(), b"");
        filter.pass(b"\x1b[31mred");
        assert_eq!(filter.restore(), b"\x1b[0m");
    }

    fn passes(mut filter: TerminalFilter, sequence: &str) -> bool {
        let passed = filter.pass(sequence.as_bytes());
        assert!(
            passed.is_empty() || passed == sequence.as_bytes(),
            "{sequence:?}"
        );
        !passed.is_empty()
    }

    #[test]
    fn only_control_sequences_on_the_list_pass() {
        const ON_SCREENS: &str = "@ABCDEFGHIJKLMPSTXZ`abdefmrsu";
        for action in '@'..='~' {
            let sequence = format!("\x1b[2{action}");
            let for_lines = passes(TerminalFilter::default(), &sequence);
            assert_eq!(for_lines, "mK".contains(action), "{action}");
            let for_screen = passes(TerminalFilter::for_screen(), &sequence);
            assert_eq!(for_screen, ON_SCREENS.contains(action), "{action}");
            for mark in ["?", ">", "<", "="] {
                let marked = format!("\x1b[{mark}2{action}");
                assert!(!passes(TerminalFilter::for_screen(), &marked), "{marked:?}");
            }
            for intermediate in ["!", "$", " "] {
                let marked = format!("\x1b[2{intermediate}{action}");
                assert!(!passes(TerminalFilter::for_screen(), &marked), "{marked:?}");
            }
        }
        let too_many_parameters = format!("\x1b[{}m", "1;".repeat(100));
        assert!(!passes(TerminalFilter::for_screen(), &too_many_parameters));
    }

    #[test]
    fn only_escapes_on_the_list_pass_and_only_to_a_screen() {
        for byte in '0'..='~' {
            // These start a longer sequence.
            if "[]PX^_".contains(byte) {
                continue;
            }
            for (intermediate, allowed) in [
                ("", "78DEM=>"),
                ("(", "0B"),
                (")", "0B"),
                ("*", ""),
                ("#", ""),
            ] {
                let sequence = format!("\x1b{intermediate}{byte}");
                assert!(
                    !passes(TerminalFilter::default(), &sequence),
                    "{sequence:?}"
                );
                let for_screen = passes(TerminalFilter::for_screen(), &sequence);
                assert_eq!(for_screen, allowed.contains(byte), "{sequence:?}");
            }
        }
    }

    #[test]
    fn only_controls_on_the_list_pass() {
        for byte in (0..0x20).filter(|&byte| byte != 0x1b).chain([0x7f]) {
            let control = char::from(byte).to_string();
            let for_lines = passes(TerminalFilter::default(), &control);
            assert_eq!(for_lines, "\t\n\r".contains(&control), "{control:?}");
            let for_screen = passes(TerminalFilter::for_screen(), &control);
            assert_eq!(
                for_screen,
                "\t\n\r\x07\x08\x0e\x0f".contains(&control),
                "{control:?}"
            );
        }
    }

    #[test]
    fn the_filter_restores_changed_modes() {
        const DRAWING: &str = "\x0f\x1b(B\x1b)B\x1b>\x1b[4l\x1b7\x1b[r\x1b8";
        for (drawn, restored) in [
            ("text\x1b[2J\x1b[3;4H\x07", ""),
            ("\x1b[31mred", "\x1b[0m"),
            ("\x1b[31mred\x1b[0m", ""),
            ("\x1b[?1h", "\x1b[?1l"),
            ("\x1b[?1h\x1b[?1l", ""),
            ("\x1b[?7l", "\x1b[?7h"),
            ("\x1b[?25l\x1b[?25h", ""),
            ("\x1b[2;5r", DRAWING),
            ("\x1b[4h", DRAWING),
            ("\x0e", DRAWING),
            ("\x1b=", DRAWING),
        ] {
            let mut filter = TerminalFilter::for_screen();
            assert_eq!(filter.pass(drawn.as_bytes()), drawn.as_bytes(), "{drawn:?}");
            let sequence = String::from_utf8(filter.restore()).unwrap();
            assert_eq!(sequence, restored, "{drawn:?}");
        }
    }

    #[test]
    fn a_coloured_line_keeps_its_colours_and_nothing_else() {
        assert_eq!(coloured(b"plain"), "plain");
        assert_eq!(coloured(b"a\x1b[1;31mred"), "a\x1b[1;31mred\x1b[0m");
        assert_eq!(coloured(b"a\x1b[2J\x1b[5;5H\x1b]0;t\x07b\x07"), "ab");
        assert_eq!(coloured(b"10%\r\x1b[32m100%\r"), "\x1b[32m100%\x1b[0m");
    }
}
