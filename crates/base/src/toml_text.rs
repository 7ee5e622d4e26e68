//! Errors of TOML files in plain words: the line, and the nearest known key.

use crate::nearest::nearest;

/// The line of a position in a text, from 1.
pub fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|&byte| byte == b'\n').count() + 1
}

/// A parser's message without Rust's names of types, and with the nearest key instead of all.
pub fn explain(message: &str) -> String {
    if !message.starts_with("unknown field") {
        return in_words(message);
    }
    // serde quotes the unknown field first and then each expected one.
    let mut quoted = message.split('`').skip(1).step_by(2);
    let Some(unknown) = quoted.next() else { return in_words(message) };
    match nearest(unknown, quoted) {
        Some(known) => format!("unknown key {unknown:?}; did you mean {known:?}?"),
        None => format!("unknown key {unknown:?}"),
    }
}

/// Replaces Rust's names of types by plain words.
fn in_words(message: &str) -> String {
    let (start, expected) = message.rsplit_once("expected ").unwrap_or((message, ""));
    if let Some(found) = start.strip_prefix("invalid value: integer `-") {
        let number = found.split('`').next().unwrap_or_default();
        return format!("found -{number}; expected a number that is not negative");
    }
    let expected = match expected {
        "u8" | "u16" | "u32" | "u64" | "usize" | "i64" => "a whole number",
        "a sequence" => "a list",
        "a map" => "a table",
        other if other.starts_with("struct ") => "a table",
        other => other,
    };
    let start = start.trim_start_matches("invalid type: ").trim_start_matches("invalid value: ");
    // Only at the start: the rest may be a value of the user's.
    let start = match (start.strip_prefix("sequence"), start.strip_prefix("map")) {
        (Some(rest), _) => format!("a list{rest}"),
        (_, Some(rest)) => format!("a table{rest}"),
        (None, None) => start.to_owned(),
    };
    if expected.is_empty() {
        message.to_owned()
    } else {
        format!("found {start}expected {expected}")
    }
}
