//! Mistakes in a policy file, with their lines.

use std::ops::Range;

use sshjobs_base::nearest::nearest;
use sshjobs_base::toml_text::line_of;

/// A mistake in a policy file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {message}")]
pub struct PolicyMistake {
    /// The line, from 1.
    pub line: usize,
    /// Description of the mistake. For a misspelt word it has the nearest known one.
    pub message: String,
}

/// The text of a file, for the lines of its mistakes.
#[derive(Clone, Copy)]
pub(super) struct MistakeLines<'a>(pub(super) &'a str);

impl MistakeLines<'_> {
    pub(super) fn line(self, span: &Range<usize>) -> usize {
        line_of(self.0, span.start)
    }

    pub(super) fn mistake(self, span: &Range<usize>, message: impl Into<String>) -> PolicyMistake {
        PolicyMistake {
            line: self.line(span),
            message: message.into(),
        }
    }
}

/// The message about an unknown word, with the nearest known one or all of them.
pub(super) fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    match nearest(word, known.iter().copied()) {
        Some(near) => format!("unknown {what} {word:?}; did you mean {near:?}?"),
        None if known.is_empty() => format!("unknown {what} {word:?}; there is none"),
        None => format!("unknown {what} {word:?}; known are {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_word_is_reported_with_the_known_ones() {
        for (known, expected) in [
            (["admin", "run"].as_slice(), "; did you mean \"admin\"?"),
            (&["x", "y"], "; known are x, y"),
            (&[], "; there is none"),
        ] {
            let message = unknown("role", "admn", known);
            assert_eq!(message, format!("unknown role \"admn\"{expected}"));
        }
    }
}
