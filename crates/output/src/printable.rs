use super::render::clean;

/// Removes from text everything that could control a terminal, except line ends. For text that a
/// host or a stranger may have sent.
pub fn printable(text: &str) -> String {
    text.lines()
        .map(|line| clean(line.as_bytes()).into_owned())
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_steers_a_terminal_is_left() {
        let hostile = "\x1b]0;title\x07name\x1b[2J\r\nnext\u{9b}31m\x08\x07 line";
        let shown = printable(hostile);
        assert!(
            shown.chars().all(|c| c == '\n' || !c.is_control()),
            "{shown:?}"
        );
        assert!(shown.starts_with("name\nnext"), "{shown:?}");
    }
}
