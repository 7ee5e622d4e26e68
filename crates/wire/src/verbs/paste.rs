//! Text that is sent to a terminal in one piece, as when a user pastes it.

use secrecy::zeroize::Zeroizing;

/// Start of pasted text in bracketed paste mode (xterm, mode 2004).
const BEGIN: &[u8] = b"\x1b[200~";
const END: &[u8] = b"\x1b[201~";
/// Number of bytes added by start and end.
pub(crate) const BRACKETS: usize = BEGIN.len() + END.len();

/// Adds `text` as a terminal in bracketed paste mode sends it.
///
/// Only text of several lines is a paste: a shell then edits it as one unit instead of running each
/// line. The final newline stays outside, so that Enter is still a key. Text with other control
/// characters counts as keys and stays unchanged.
pub(crate) fn add_pasted(bytes: &mut Zeroizing<Vec<u8>>, text: &str) {
    let pasted = text.trim_end_matches(['\r', '\n']);
    if !is_paste(pasted) {
        bytes.extend_from_slice(text.as_bytes());
        return;
    }
    bytes.extend_from_slice(BEGIN);
    bytes.extend_from_slice(pasted.as_bytes());
    bytes.extend_from_slice(END);
    bytes.extend_from_slice(&text.as_bytes()[pasted.len()..]);
}

/// Whether text has several lines and no control characters except line ends and tabs. So it can't
/// contain the end of a paste.
fn is_paste(text: &str) -> bool {
    text.contains(['\r', '\n'])
        && !text.contains(|c: char| c.is_control() && !matches!(c, '\r' | '\n' | '\t'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pasted(text: &str) -> String {
        let mut bytes = Zeroizing::new(Vec::new());
        add_pasted(&mut bytes, text);
        String::from_utf8(bytes.to_vec()).unwrap()
    }

    #[test]
    fn several_lines_are_a_paste_and_the_last_end_of_line_is_a_key() {
        assert_eq!(pasted("one\ntwo\r\n"), "\x1b[200~one\ntwo\x1b[201~\r\n");
    }

    #[test]
    fn one_line_and_keys_are_no_paste() {
        for text in ["", "ls", "ls\n", "\n\n", "a\nb\x03", "a\n\x1b[201~b"] {
            assert_eq!(pasted(text), text);
        }
    }
}
