//! Texts that are wrapped in the source, for terminals of any width.

use unicode_width::UnicodeWidthStr;

/// A text with each paragraph on one line. Indented lines, such as examples, stay as they are.
pub(crate) fn joined(text: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines() {
        let continues = !line.is_empty() && !line.starts_with(' ');
        match lines.last_mut() {
            Some(last) if continues && !last.is_empty() && !last.starts_with(' ') => {
                last.push(' ');
                last.push_str(line);
            }
            _ => lines.push(line.to_owned()),
        }
    }
    lines.join("\n")
}

/// A text whose paragraphs are wrapped at this width.
pub(crate) fn wrapped(text: &str, width: usize) -> String {
    let mut lines = Vec::new();
    for paragraph in joined(text).lines() {
        if paragraph.starts_with(' ') {
            lines.push(paragraph.to_owned());
            continue;
        }
        let mut line = String::new();
        for word in paragraph.split(' ') {
            if !line.is_empty() && line.width() + 1 + word.width() > width {
                lines.push(std::mem::take(&mut line));
            }
            if !line.is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        lines.push(line);
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "One paragraph\nof two lines.\n\nExamples:\n  sshjobs run web1\n  sshjobs jobs\nMore\ntext";

    #[test]
    fn paragraphs_are_joined_and_examples_stay() {
        assert_eq!(
            joined(TEXT),
            "One paragraph of two lines.\n\nExamples:\n  sshjobs run web1\n  sshjobs jobs\nMore text"
        );
    }

    #[test]
    fn paragraphs_are_wrapped_between_words() {
        assert_eq!(
            wrapped(TEXT, 14),
            "One paragraph\nof two lines.\n\nExamples:\n  sshjobs run web1\n  sshjobs jobs\nMore text"
        );
    }
}
