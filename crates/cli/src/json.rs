//! JSON for stdout, which may be a terminal.

use serde::Serialize;

/// A value as one line of JSON. Characters that a terminal would obey are written as escapes: C1
/// controls, and those that change the direction of text. (serde_json escapes C0 controls.)
pub(crate) fn json(value: &impl Serialize) -> String {
    escaped(&serde_json::to_string(value).expect("a reply is plain data"))
}

/// Like [`json`], on several lines for a person.
pub(crate) fn pretty_json(value: &impl Serialize) -> String {
    escaped(&serde_json::to_string_pretty(value).expect("a reply is plain data"))
}

fn escaped(json: &str) -> String {
    // Outside of strings JSON has none of these characters.
    json.chars().map(escape).collect()
}

fn escape(character: char) -> String {
    match character {
        '\u{7f}'..='\u{9f}'
        | '\u{61c}'
        | '\u{200e}'
        | '\u{200f}'
        | '\u{202a}'..='\u{202e}'
        | '\u{2066}'..='\u{2069}' => format!("\\u{:04x}", u32::from(character)),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped_and_reads_back_the_same() {
        let text = "a\u{9b}2J\u{202e}b\u{1b}[0m é 東\u{7f}";

        let shown = json(&text);

        assert!(
            !shown.contains(['\u{9b}', '\u{202e}', '\u{1b}', '\u{7f}']),
            "{shown}"
        );
        assert_eq!(serde_json::from_str::<String>(&shown).unwrap(), text);
        assert!(shown.contains("é 東"));
    }
}
