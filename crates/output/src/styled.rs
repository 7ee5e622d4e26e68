//! Splits a line into pieces of one style, for clients that are not terminals.

use std::mem;

use vte::{Params, Parser, Perform};

use super::render::{ends_inside_a_character, harmless_text, is_harmless, is_section_mark};

/// A piece of a line with one style.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StyledText {
    /// Its text. All pieces together are the line as [`clean`](super::clean) returns it.
    pub text: String,
    /// How it looks.
    pub style: TextStyle,
}

/// Colours and attributes of text (ECMA-48, SGR).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TextStyle {
    /// Colour of the text. `None`: the reader's default.
    pub foreground: Option<Colour>,
    /// Colour behind the text. `None`: the reader's default.
    pub background: Option<Colour>,
    /// Bold.
    pub bold: bool,
    /// Faint.
    pub dim: bool,
    /// Italic.
    pub italic: bool,
    /// Underlined.
    pub underline: bool,
    /// With foreground and background exchanged.
    pub reversed: bool,
    /// Crossed out.
    pub strike: bool,
}

/// A colour of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Colour {
    /// One of the 16 colours whose look the reader chooses: 0 to 7, and 8 to 15 for the bright ones.
    Named(u8),
    /// Red, green and blue.
    Rgb(u8, u8, u8),
}

/// Splits a line at each change of its style. Text that a program hides is shown.
pub fn styled(line: &[u8]) -> Vec<StyledText> {
    if let Some(text) = harmless_text(line) {
        return if text.is_empty() {
            Vec::new()
        } else {
            vec![StyledText {
                text: text.to_owned(),
                style: TextStyle::default(),
            }]
        };
    }
    let mut view = StyledView::default();
    let mut parser = Parser::new();
    parser.advance(&mut view, line);
    if ends_inside_a_character(line)
        && super::OpenEscape::None.after(line) == super::OpenEscape::None
    {
        view.show(char::REPLACEMENT_CHARACTER);
    }
    view.pieces
}

#[derive(Default)]
struct StyledView {
    pieces: Vec<StyledText>,
    style: TextStyle,
    /// After a CR, the next visible text starts a new frame.
    overwrite: bool,
    /// Bytes of all pieces.
    length: usize,
    /// Bytes of the section marks before the frame.
    marks: usize,
    /// The beginning of the frame, long enough to recognize a section mark. Each frame is looked at once, so that a
    /// line of many frames takes no more time than another one.
    beginning: String,
}

/// The longer one of the words with which a section mark begins.
const SECTION_MARK: &str = "section_start:";

impl StyledView {
    fn show(&mut self, c: char) {
        if mem::take(&mut self.overwrite) {
            if is_section_mark(&self.beginning) {
                self.push(' ');
                self.marks = self.length;
            } else {
                self.truncate(self.marks);
            }
            self.beginning.clear();
        }
        if self.beginning.len() < SECTION_MARK.len() {
            self.beginning.push(c);
        }
        self.push(c);
    }

    fn push(&mut self, c: char) {
        self.length += c.len_utf8();
        match self.pieces.last_mut() {
            Some(last) if last.style == self.style => last.text.push(c),
            Some(_) | None => self.pieces.push(StyledText {
                text: c.into(),
                style: self.style,
            }),
        }
    }
}

impl StyledView {
    /// Keeps the first bytes of the text, which end between two characters.
    fn truncate(&mut self, bytes: usize) {
        while let Some(last) = self.pieces.last_mut()
            && self.length > bytes
        {
            let surplus = (self.length - bytes).min(last.text.len());
            last.text.truncate(last.text.len() - surplus);
            self.length -= surplus;
            if last.text.is_empty() {
                self.pieces.pop();
            }
        }
    }
}

impl Perform for StyledView {
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

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], _: bool, action: char) {
        if action == 'm' && intermediates.is_empty() {
            self.style.apply(params);
        }
    }
}

impl TextStyle {
    /// Whether a space with this style looks like a plain one.
    pub(crate) fn is_invisible_on_space(self) -> bool {
        self.background.is_none() && !self.reversed && !self.underline && !self.strike
    }

    /// Applies the parameters of one SGR sequence.
    fn apply(&mut self, params: &Params) {
        let mut params = params.iter();
        while let Some(param) = params.next() {
            let code = param.first().copied().unwrap_or(0);
            match code {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.dim = true,
                3 => self.italic = true,
                // 4:0 is "not underlined", 4:3 a curly line.
                4 => self.underline = param.get(1) != Some(&0),
                7 => self.reversed = true,
                9 => self.strike = true,
                21 => self.underline = true,
                22 => {
                    self.bold = false;
                    self.dim = false;
                }
                23 => self.italic = false,
                24 => self.underline = false,
                27 => self.reversed = false,
                29 => self.strike = false,
                30..=37 => self.foreground = named(code, 30, 0),
                38 => self.foreground = extended(param, &mut params).or(self.foreground),
                39 => self.foreground = None,
                40..=47 => self.background = named(code, 40, 0),
                48 => self.background = extended(param, &mut params).or(self.background),
                49 => self.background = None,
                // The colour of the underline is not shown. Its parameters must not be read as attributes.
                58 => drop(extended(param, &mut params)),
                90..=97 => self.foreground = named(code, 90, 8),
                100..=107 => self.background = named(code, 100, 8),
                _ => {}
            }
        }
    }
}

/// The named colour of a code, whose range starts at `first` with the colour `number`.
fn named(code: u16, first: u16, number: u8) -> Option<Colour> {
    let offset = u8::try_from(code - first).ok()?;
    Some(Colour::Named(number + offset))
}

/// The colour after 38, 48 or 58: as subparameters (`38:5:N`, `38:2::R:G:B`), or as the parameters
/// that follow (`38;5;N`, `38;2;R;G;B`), which are consumed.
fn extended<'a>(param: &[u16], rest: &mut impl Iterator<Item = &'a [u16]>) -> Option<Colour> {
    if let [_, kind, values @ ..] = param {
        // The number of the colour space may stand before red, green and blue.
        let components = match (kind, values) {
            (2, [_, red, green, blue, ..]) => &[*red, *green, *blue],
            _ => values,
        };
        return colour(*kind, components);
    }
    let mut values = rest.map_while(|param| param.first().copied());
    match values.next()? {
        5 => colour(5, &[values.next()?]),
        2 => colour(2, &[values.next()?, values.next()?, values.next()?]),
        _ => None,
    }
}

/// A colour of the palette of 256 (kind 5), or of its components (kind 2).
fn colour(kind: u16, values: &[u16]) -> Option<Colour> {
    match (kind, values) {
        (5, [number, ..]) => byte(*number).map(of_palette),
        (2, [red, green, blue, ..]) => Some(Colour::Rgb(byte(*red)?, byte(*green)?, byte(*blue)?)),
        _ => None,
    }
}

fn byte(value: u16) -> Option<u8> {
    u8::try_from(value).ok()
}

/// A colour of xterm's palette: 16 named colours, a cube of 6 × 6 × 6, and 24 greys.
pub(crate) fn of_palette(number: u8) -> Colour {
    /// Brightness of the six steps of the cube.
    const STEPS: [u8; 6] = [0, 95, 135, 175, 215, 255];
    match number {
        0..=15 => Colour::Named(number),
        16..=231 => {
            let position = usize::from(number - 16);
            let [red, green, blue] = [36, 6, 1].map(|size| STEPS[position / size % 6]);
            Colour::Rgb(red, green, blue)
        }
        232..=255 => {
            let grey = 8 + 10 * (number - 232);
            Colour::Rgb(grey, grey, grey)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::clean;

    fn style_of(line: &str) -> TextStyle {
        let pieces = styled(line.as_bytes());
        assert_eq!(pieces.len(), 1, "{pieces:?}");
        pieces[0].style
    }

    #[test]
    fn a_line_is_split_where_its_style_changes() {
        let pieces = styled(b"ok \x1b[1;31mbad\x1b[0m \x1b[32mgood");
        let texts: Vec<&str> = pieces.iter().map(|piece| piece.text.as_str()).collect();

        assert_eq!(texts, ["ok ", "bad", " ", "good"]);
        assert_eq!(pieces[1].style.foreground, Some(Colour::Named(1)));
        assert!(pieces[1].style.bold);
        assert_eq!(pieces[2].style, TextStyle::default());
        assert!(!pieces[3].style.bold);
    }

    #[test]
    fn colours_of_every_notation_are_understood() {
        for (sequence, colour) in [
            ("\x1b[37m", Colour::Named(7)),
            ("\x1b[94m", Colour::Named(12)),
            ("\x1b[38;5;9m", Colour::Named(9)),
            ("\x1b[38;5;208m", Colour::Rgb(255, 135, 0)),
            ("\x1b[38;5;255m", Colour::Rgb(238, 238, 238)),
            ("\x1b[38;2;1;2;3m", Colour::Rgb(1, 2, 3)),
            ("\x1b[38:2:1:2:3m", Colour::Rgb(1, 2, 3)),
            ("\x1b[38:2::1:2:3m", Colour::Rgb(1, 2, 3)),
            ("\x1b[38:5:208m", Colour::Rgb(255, 135, 0)),
        ] {
            let style = style_of(&format!("{sequence}x"));
            assert_eq!(style.foreground, Some(colour), "{sequence:?}");
        }
    }

    #[test]
    fn backgrounds_have_the_same_colours() {
        for (sequence, colour) in [
            ("\x1b[41m", Colour::Named(1)),
            ("\x1b[103m", Colour::Named(11)),
            ("\x1b[48;5;16m", Colour::Rgb(0, 0, 0)),
            ("\x1b[48;5;232m", Colour::Rgb(8, 8, 8)),
        ] {
            let style = style_of(&format!("{sequence}x"));
            assert_eq!(style.background, Some(colour), "{sequence:?}");
            assert_eq!(style.foreground, None, "{sequence:?}");
        }
    }

    #[test]
    fn an_incomplete_colour_changes_nothing() {
        for sequence in [
            "\x1b[31;38m",
            "\x1b[31;38;5m",
            "\x1b[31;38;2;1;2m",
            "\x1b[31;38;5;256m",
        ] {
            let style = style_of(&format!("{sequence}x"));
            assert_eq!(style.foreground, Some(Colour::Named(1)), "{sequence:?}");
        }
    }

    #[test]
    fn each_attribute_is_set_and_reset_alone() {
        type Change = fn(&mut TextStyle);
        let cases: [(&str, &str, Change); 10] = [
            ("1", "22", |style| style.bold = true),
            ("2", "22", |style| style.dim = true),
            ("3", "23", |style| style.italic = true),
            ("4", "24", |style| style.underline = true),
            ("4:3", "4:0", |style| style.underline = true),
            ("21", "24", |style| style.underline = true),
            ("7", "27", |style| style.reversed = true),
            ("9", "29", |style| style.strike = true),
            ("35", "39", |style| {
                style.foreground = Some(Colour::Named(5))
            }),
            ("45", "49", |style| {
                style.background = Some(Colour::Named(5))
            }),
        ];
        let plain = TextStyle::default();
        for (on, off, change) in cases {
            let mut expected = plain;
            change(&mut expected);
            assert_eq!(style_of(&format!("\x1b[{on}mx")), expected, "{on}");
            assert_eq!(
                style_of(&format!("\x1b[{on}m\x1b[{off}mx")),
                plain,
                "{on} and {off}"
            );
            assert_eq!(style_of(&format!("\x1b[{on};0mx")), plain, "{on} and 0");
        }
    }

    #[test]
    fn only_sgr_sequences_change_the_style() {
        for sequence in ["\x1b[1A", "\x1b[1K", "\x1b[>4m", "\x1b[?1m"] {
            let style = style_of(&format!("{sequence}x"));
            assert_eq!(style, TextStyle::default(), "{sequence:?}");
        }
    }

    #[test]
    fn parameters_of_a_colour_are_no_attributes() {
        // 1 and 4 would be bold and underlined.
        for sequence in ["\x1b[38;5;1m", "\x1b[58;5;4m", "\x1b[48;2;1;4;7m"] {
            let style = style_of(&format!("{sequence}x"));
            assert!(
                !style.bold && !style.underline && !style.reversed,
                "{sequence:?}"
            );
        }
        assert!(style_of("\x1b[38;5;1;4mx").underline);
    }

    #[test]
    fn text_that_a_program_hides_is_shown() {
        assert_eq!(styled(b"\x1b[8mhidden")[0].text, "hidden");
    }

    #[test]
    fn only_the_last_frame_of_a_progress_bar_stays() {
        let pieces = styled(b"\x1b[32m10%\r\x1b[31m99%");

        assert_eq!(pieces.len(), 1);
        assert_eq!(pieces[0].text, "99%");
    }

    proptest! {
        #[test]
        fn all_pieces_together_are_the_clean_line(
            line in proptest::collection::vec(
                prop_oneof![
                    Just(b"\x1b[1;3".to_vec()),
                    Just(b"1m".to_vec()),
                    Just(b"\x1b[0m".to_vec()),
                    Just(b"\x1b]8;;x\x07".to_vec()),
                    Just(b"\r".to_vec()),
                    Just("é日\u{202e}".as_bytes().to_vec()),
                    proptest::collection::vec(any::<u8>(), 0..4),
                ],
                0..12,
            )
        ) {
            let line = line.concat();
            let text: String = styled(&line).into_iter().map(|piece| piece.text).collect();
            prop_assert_eq!(text, clean(&line));
        }
    }
}
