//! One form in which a secret may be printed, and how it is found in a text.

use std::fmt;

use secrecy::zeroize::Zeroizing;

/// Maximum line ends (CR, LF) and control sequences in a row that are skipped inside a printed secret: a
/// terminal or `base64` may break its line, `grep` may colour a part of it, and a value may have blank lines.
const MAX_LINE_ENDS: usize = 8;

/// One form in which a secret may be printed. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Form {
    /// Its bytes, without line ends.
    bytes: Zeroizing<Vec<u8>>,
    style: FormStyle,
}

/// How the bytes of a form may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormStyle {
    /// As they are.
    Plain,
    /// With the escapes of shells, `$'…'` and JSON: any byte except a letter or digit may have a
    /// backslash before it, and bytes may be written as `\n`, `\t`, `\NNN`, `\xHH` or `\u00HH`.
    Backslashes,
    /// Any byte may be `%XX`, and a space `+`, as in a URL (RFC 3986).
    Percent,
}

/// The result of looking for a form at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FormMatch {
    /// The text begins with the form, which takes this many bytes.
    Whole(usize),
    /// The text ends before the form does.
    Partial {
        /// Whether at least a third of the form is there.
        is_likely: bool,
        /// Bytes of the form.
        of: usize,
    },
    /// The text begins with something else.
    Nothing,
}

/// The result of comparing one byte of a form.
enum ByteMatch {
    /// The text has it, in this many bytes.
    Matches(usize),
    /// The text ends too early to tell.
    NeedsMore,
    /// The text has another byte.
    Differs,
}

impl Form {
    /// A form without its line ends, which are ignored. `None` if nothing is left.
    pub(super) fn new(bytes: &[u8], style: FormStyle) -> Option<Self> {
        let mut kept = Zeroizing::new(Vec::with_capacity(bytes.len()));
        kept.extend(bytes.iter().filter(|byte| !is_line_end(**byte)));
        (!kept.is_empty()).then_some(Self { bytes: kept, style })
    }

    /// First bytes of the texts in which the form may be written.
    pub(super) fn first_bytes(&self) -> impl Iterator<Item = u8> {
        let first = self.bytes[0];
        let encoded = match self.style {
            FormStyle::Backslashes => Some(b'\\'),
            FormStyle::Percent => Some(b'%'),
            FormStyle::Plain => None,
        };
        let space = (self.style == FormStyle::Percent && first == b' ').then_some(b'+');
        [Some(first), encoded, space].into_iter().flatten()
    }

    /// Looks for the form at the start of `text`. A line end directly after its first byte is not
    /// skipped: each line that ends with that byte would have to wait for the next one.
    pub(super) fn find_at_start(&self, text: &[u8]) -> FormMatch {
        self.find_from(0, text)
    }

    /// Looks for the form without its first byte at the start of `text`, a new line. The line before
    /// ended with `first`.
    pub(super) fn find_rest_at_start(&self, first: u8, text: &[u8]) -> FormMatch {
        if self.bytes[0] == first && self.bytes.len() > 1 {
            self.find_from(1, text)
        } else {
            FormMatch::Nothing
        }
    }

    fn find_from(&self, start: usize, text: &[u8]) -> FormMatch {
        let mut at = 0;
        for (index, expected) in self.bytes.iter().enumerate().skip(start) {
            let partial = FormMatch::Partial {
                is_likely: 3 * index >= self.bytes.len(),
                of: self.bytes.len(),
            };
            if index > start {
                let gap = Gap {
                    before: self.bytes[index - 1],
                    expected: *expected,
                    // Otherwise each line that ends with the first byte would have to wait for the next one.
                    may_break_line: index > 1,
                };
                match self.style.skipped_at_start(&text[at..], gap) {
                    Some(length) => at += length,
                    None => return partial,
                }
            }
            match self.style.compare(&text[at..], *expected) {
                ByteMatch::Matches(length) => at += length,
                ByteMatch::NeedsMore => return partial,
                ByteMatch::Differs => return FormMatch::Nothing,
            }
        }
        FormMatch::Whole(at)
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Form({} bytes)", self.bytes.len())
    }
}

impl FormStyle {
    fn compare(self, text: &[u8], expected: u8) -> ByteMatch {
        let Some(first) = text.first() else { return ByteMatch::NeedsMore };
        let encoded = match (self, first) {
            (Self::Backslashes, b'\\') => after_backslash(text, expected),
            (Self::Percent, b'%') => number_after(text, 1, NumberBase::HEXADECIMAL, expected),
            (Self::Percent, b'+') if expected == b' ' => ByteMatch::Matches(1),
            _ => ByteMatch::Differs,
        };
        // The byte itself may be a backslash or a percent sign.
        if matches!(encoded, ByteMatch::Differs) && *first == expected {
            ByteMatch::Matches(1)
        } else {
            encoded
        }
    }

    /// Number of bytes at the start of a text that a terminal does not show as characters between two bytes of a form.
    /// `None` if the text ends too early to tell, so that the result does not depend on where a piece of
    /// output ends.
    fn skipped_at_start(self, text: &[u8], gap: Gap) -> Option<usize> {
        let Gap {
            before,
            expected,
            may_break_line,
        } = gap;
        let mut at = 0;
        for _ in 0..MAX_LINE_ENDS {
            match text.get(at..) {
                Some([0x1b, rest @ ..]) if expected != 0x1b => match escape_length(rest) {
                    EscapeForm::Ends(length) => at += 1 + length,
                    EscapeForm::NeedsMore => return None,
                    EscapeForm::None => break,
                },
                // SI and SO are in `tput sgr0` of many terminals. The clean view drops them all.
                Some([byte, ..]) if is_dropped(*byte) && *byte != expected => at += 1,
                Some(rest) if begins_invisible(rest) && expected != rest[0] => {
                    match invisible_length(rest) {
                        Some(length) => at += length,
                        None => return None,
                    }
                }
                // Bold and underlined text of a printer, as in manual pages: `s BS s`, `_ BS s`.
                Some([BACKSPACE]) => return None,
                Some([BACKSPACE, again, ..]) if *again == before => at += 2,
                Some([b'_']) if expected != b'_' => return None,
                Some([b'_', BACKSPACE, ..]) => at += 2,
                Some(_) if !may_break_line => break,
                Some([b'\r' | b'\n', ..]) => at += 1,
                // The end of a line at the edge of a terminal.
                Some([b' ', b'\r', ..]) if expected != b' ' => at += 2,
                Some([b' ']) if expected != b' ' => return None,
                Some([b'%', b'0', b'A' | b'a' | b'D' | b'd', ..])
                    if self == Self::Percent && expected != b'%' =>
                {
                    at += 3;
                }
                // Escaped, unless the backslash is one of the secret's own.
                Some([b'\\', b'r' | b'n', ..])
                    if self == Self::Backslashes && expected != b'\\' =>
                {
                    at += 2;
                }
                _ => break,
            }
        }
        Some(at)
    }
}

/// Whether a terminal does nothing visible with a control character.
fn is_dropped(byte: u8) -> bool {
    matches!(byte, 0..=0x07 | 0x0b | 0x0c | 0x0e..=0x1a | 0x1c..=0x1f | 0x7f)
}

/// Characters without a width, in UTF-8.
const INVISIBLE: [&[u8]; 8] = [
    "\u{ad}".as_bytes(),
    "\u{200b}".as_bytes(),
    "\u{200c}".as_bytes(),
    "\u{200d}".as_bytes(),
    "\u{200e}".as_bytes(),
    "\u{200f}".as_bytes(),
    "\u{2060}".as_bytes(),
    "\u{feff}".as_bytes(),
];

/// Whether a text begins with a character without a width, or may do so once more bytes come.
fn begins_invisible(text: &[u8]) -> bool {
    let may_become = |form: &&[u8]| form.starts_with(text) || text.starts_with(form);
    !text.is_empty() && INVISIBLE.iter().any(may_become)
}

/// Length of the character without a width at the start of a text. `None` if the text ends too early to tell.
fn invisible_length(text: &[u8]) -> Option<usize> {
    INVISIBLE.iter().find(|form| text.starts_with(form)).map(|form| form.len())
}

/// The place between two bytes of a form.
#[derive(Clone, Copy)]
struct Gap {
    before: u8,
    expected: u8,
    may_break_line: bool,
}

/// An escape sequence, without its first byte.
enum EscapeForm {
    /// It takes this many bytes.
    Ends(usize),
    /// The text ends before it does.
    NeedsMore,
    /// The bytes are not an escape sequence, or it is too long.
    None,
}

const BACKSPACE: u8 = 0x08;
/// Maximum bytes of an escape sequence that is skipped: a colour takes few.
const MAX_ESCAPE: usize = 32;
/// Maximum bytes of a string that is skipped: one with a link has its address.
const MAX_STRING: usize = 512;

/// Measures an escape sequence (ECMA-48, sections 5.3 to 5.6) after its first byte: a control sequence such as a colour,
/// a string such as a link, or a short one such as a choice of characters (`ESC ( B`).
fn escape_length(rest: &[u8]) -> EscapeForm {
    let Some(first) = rest.first() else { return EscapeForm::NeedsMore };
    let (end, most) = match first {
        b'[' => {
            // CAN and SUB abort it. So does another escape sequence, which begins there.
            let ends = |byte: &u8| matches!(byte, 0x40..=0x7e | 0x18 | 0x1a | 0x1b);
            let end = rest.iter().skip(1).position(ends).map(|end| end + 1);
            let length = end.map(|end| if rest[end] == 0x1b { end } else { end + 1 });
            (length, MAX_ESCAPE)
        }
        // Aborted by another one.
        0x1b => (Some(0), MAX_ESCAPE),
        b']' | b'P' | b'X' | b'^' | b'_' => (string_length(rest), MAX_STRING),
        _ => {
            let is_final = |byte: &u8| !(0x20..=0x2f).contains(byte);
            (
                rest.iter().position(is_final).map(|end| end + 1),
                MAX_ESCAPE,
            )
        }
    };
    match end {
        Some(length) if length <= most => EscapeForm::Ends(length),
        None if rest.len() < most => EscapeForm::NeedsMore,
        Some(_) | None => EscapeForm::None,
    }
}

/// Length of a string with its end: BEL, or ESC and a backslash.
fn string_length(rest: &[u8]) -> Option<usize> {
    let end = rest.iter().position(|byte| matches!(byte, 0x07 | 0x1b))?;
    match rest.get(end)? {
        0x07 => Some(end + 1),
        // Another escape sequence aborts the string.
        _ => rest.get(end + 1).map(|next| if *next == b'\\' { end + 2 } else { end }),
    }
}

/// A number of a fixed length.
#[derive(Clone, Copy)]
struct NumberBase {
    radix: u32,
    digits: usize,
}

impl NumberBase {
    const HEXADECIMAL: Self = Self {
        radix: 16,
        digits: 2,
    };
    const UNICODE: Self = Self {
        radix: 16,
        digits: 4,
    };
    const OCTAL: Self = Self {
        radix: 8,
        digits: 3,
    };
}

/// Compares what follows a backslash, with which `text` begins, with `expected`.
fn after_backslash(text: &[u8], expected: u8) -> ByteMatch {
    let Some((byte, end)) = byte_after(text, 1) else {
        return ByteMatch::NeedsMore;
    };
    match byte {
        _ if byte == expected && is_special(expected) => ByteMatch::Matches(end),
        b't' if expected == b'\t' => ByteMatch::Matches(end),
        b'x' => number_after(text, end, NumberBase::HEXADECIMAL, expected),
        b'u' => number_after(text, end, NumberBase::UNICODE, expected),
        b'0'..=b'7' => number_after(text, end - 1, NumberBase::OCTAL, expected),
        _ => ByteMatch::Differs,
    }
}

/// Compares the number that begins at `at` with `expected`.
fn number_after(text: &[u8], at: usize, base: NumberBase, expected: u8) -> ByteMatch {
    let mut value = 0;
    let mut end = at;
    for _ in 0..base.digits {
        let Some((byte, after)) = byte_after(text, end) else {
            return ByteMatch::NeedsMore;
        };
        let Some(digit) = char::from(byte).to_digit(base.radix) else {
            return ByteMatch::Differs;
        };
        value = value * base.radix + digit;
        end = after;
    }
    if value == u32::from(expected) {
        ByteMatch::Matches(end)
    } else {
        ByteMatch::Differs
    }
}

/// The first byte at or after `at` that is not a line end, and the offset just after it.
fn byte_after(text: &[u8], at: usize) -> Option<(u8, usize)> {
    let rest = text.get(at..)?;
    let skipped = rest.iter().take(MAX_LINE_ENDS).take_while(|byte| is_line_end(**byte)).count();
    Some((*rest.get(skipped)?, at + skipped + 1))
}

/// Whether a shell may write a backslash before this byte.
fn is_special(byte: u8) -> bool {
    !byte.is_ascii_alphanumeric()
}

/// Whether a byte ends a line.
pub(super) fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}
