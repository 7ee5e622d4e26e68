//! One form in which a secret may be printed, and how it is found in a text.

use std::fmt;

use secrecy::zeroize::Zeroizing;

/// Maximum line ends (CR or LF) in a row that a printed secret may have between two of its bytes: a
/// terminal or `base64` may break its line.
const MOST_LINE_ENDS: usize = 3;

/// One form in which a secret may be printed. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Form {
    /// Its bytes, without line ends.
    bytes: Zeroizing<Vec<u8>>,
    style: Style,
}

/// How the bytes of a form may be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Style {
    /// As they are.
    Plain,
    /// Any byte but a letter or digit may have a backslash before it, as in a shell.
    Backslashes,
    /// Any byte may be `%XX`, and a space `+`, as in a URL (RFC 3986).
    Percent,
}

/// The result of looking for a form at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// The text begins with the form, which takes this many bytes.
    Whole(usize),
    /// The text ends before the form does.
    Partial,
    /// The text begins with something else.
    Nothing,
}

/// The result of comparing one byte of a form.
enum Unit {
    /// The text has it, in this many bytes.
    Taken(usize),
    /// The text ends too early to tell.
    Short,
    /// The text has another byte.
    Other,
}

impl Form {
    /// A form without its line ends, which are ignored. `None` if nothing is left.
    pub(super) fn new(bytes: &[u8], style: Style) -> Option<Self> {
        let mut kept = Zeroizing::new(Vec::with_capacity(bytes.len()));
        kept.extend(bytes.iter().filter(|byte| !is_line_end(**byte)));
        (!kept.is_empty()).then_some(Self { bytes: kept, style })
    }

    /// The bytes with which a text that has the form may begin.
    pub(super) fn first_bytes(&self) -> impl Iterator<Item = u8> {
        let first = self.bytes[0];
        let encoded = match self.style {
            Style::Backslashes if is_special(first) => Some(b'\\'),
            Style::Percent => Some(b'%'),
            Style::Plain | Style::Backslashes => None,
        };
        let space = (self.style == Style::Percent && first == b' ').then_some(b'+');
        [Some(first), encoded, space].into_iter().flatten()
    }

    /// Looks for the form at the start of `text`.
    pub(super) fn find_at_start(&self, text: &[u8]) -> Found {
        let mut at = 0;
        for (index, expected) in self.bytes.iter().enumerate() {
            if index > 0 {
                at += line_ends_at_start(&text[at..]);
            }
            match self.style.compare(&text[at..], *expected) {
                Unit::Taken(length) => at += length,
                Unit::Short => return Found::Partial,
                Unit::Other => return Found::Nothing,
            }
        }
        Found::Whole(at)
    }
}

impl fmt::Debug for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Form({} bytes)", self.bytes.len())
    }
}

impl Style {
    fn compare(self, text: &[u8], expected: u8) -> Unit {
        let Some(first) = text.first() else { return Unit::Short };
        let encoded = match (self, first) {
            (Self::Backslashes, b'\\') if is_special(expected) => after_backslash(text, expected),
            (Self::Percent, b'%') => after_percent(text, expected),
            (Self::Percent, b'+') if expected == b' ' => Unit::Taken(1),
            _ => Unit::Other,
        };
        // The byte itself may be a backslash or a percent sign.
        if matches!(encoded, Unit::Other) && *first == expected {
            Unit::Taken(1)
        } else {
            encoded
        }
    }
}

/// Compares the byte after a backslash, with which `text` begins.
fn after_backslash(text: &[u8], expected: u8) -> Unit {
    match byte_after(text, 1) {
        None => Unit::Short,
        Some((byte, end)) if byte == expected => Unit::Taken(end),
        Some(_) => Unit::Other,
    }
}

/// Compares the two digits after a percent sign, with which `text` begins.
fn after_percent(text: &[u8], expected: u8) -> Unit {
    let mut value = 0;
    let mut end = 1;
    for _ in 0..2 {
        let Some((byte, after)) = byte_after(text, end) else { return Unit::Short };
        let Some(digit) = char::from(byte).to_digit(16) else { return Unit::Other };
        value = value * 16 + digit;
        end = after;
    }
    if value == u32::from(expected) {
        Unit::Taken(end)
    } else {
        Unit::Other
    }
}

/// The next byte at or after `at` that is no line end, and the place after it.
fn byte_after(text: &[u8], at: usize) -> Option<(u8, usize)> {
    let rest = text.get(at..)?;
    let skipped = line_ends_at_start(rest);
    Some((*rest.get(skipped)?, at + skipped + 1))
}

/// Whether a shell may write a backslash before this byte.
fn is_special(byte: u8) -> bool {
    !byte.is_ascii_alphanumeric()
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

fn line_ends_at_start(text: &[u8]) -> usize {
    text.iter().take(MOST_LINE_ENDS).take_while(|byte| is_line_end(**byte)).count()
}
