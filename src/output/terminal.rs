use vte::{Params, Parser, Perform};

use super::render::is_harmless;

/// Makes remote output safe for the terminal of the person who looks on.
///
/// Text, line ends, tabs, backspace, bare CR, colours (SGR) and "erase in line" pass; every other control or escape
/// sequence is dropped, so that the remote side can't retitle, query or reprogram the terminal, nor write its
/// clipboard. A line's end ends every sequence, so that an open one swallows no more than its line. State carries over from chunk to chunk: any division of the same bytes gives the same result.
#[derive(Default)]
pub struct TerminalFilter {
    parser: Parser,
}

impl TerminalFilter {
    /// What of the next `chunk` may be written to the terminal.
    pub fn pass(&mut self, chunk: &[u8]) -> Vec<u8> {
        let mut passed = Passed(Vec::with_capacity(chunk.len()));
        for piece in chunk.split_inclusive(|&byte| byte == b'\n') {
            let text = piece.strip_suffix(b"\n");
            self.parser.advance(&mut passed, text.unwrap_or(piece));
            if text.is_some() {
                self.parser = Parser::new();
                passed.0.push(b'\n');
            }
        }
        passed.0
    }
}

impl std::fmt::Debug for TerminalFilter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TerminalFilter").finish_non_exhaustive()
    }
}

struct Passed(Vec<u8>);

impl Perform for Passed {
    fn print(&mut self, c: char) {
        if is_harmless(c) {
            self.0.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
    }

    fn execute(&mut self, byte: u8) {
        if matches!(byte, b'\r' | b'\t' | 0x08) {
            self.0.push(byte);
        }
    }

    fn csi_dispatch(&mut self, params: &Params, intermediates: &[u8], ignore: bool, action: char) {
        if ignore || !intermediates.is_empty() || !matches!(action, 'm' | 'K') {
            return;
        }
        // 8 hides text from the person who looks on.
        let hides = |parameter: &[u16]| action == 'm' && parameter == [8];
        let params: Vec<String> = params
            .iter()
            .map(|subparams| if hides(subparams) { &[28] } else { subparams })
            .map(|subparams| subparams.iter().map(u16::to_string).collect::<Vec<_>>().join(":"))
            .collect();
        self.0.extend_from_slice(format!("\x1b[{}{action}", params.join(";")).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pass(bytes: &[u8]) -> String {
        String::from_utf8(TerminalFilter::default().pass(bytes)).expect("text")
    }

    #[test]
    fn text_and_colours_pass() {
        assert_eq!(pass(b"a\r\n\x1b[1;31mred\x1b[0m\tb"), "a\r\n\x1b[1;31mred\x1b[0m\tb");
    }

    #[test]
    fn clipboard_title_cursor_and_query_do_not_pass() {
        assert_eq!(pass(b"a\x1b]52;c;aGk=\x07\x1b]0;t\x07\x1b[2J\x1b[6n\x1bP+q\x1b\\\x05b"), "ab");
    }

    #[test]
    fn nothing_is_hidden() {
        assert_eq!(pass(b"\x1b]0;open\nshown\n"), "\nshown\n");
        assert_eq!(pass(b"\x1b[1;8msecret"), "\x1b[1;28msecret");
    }

    #[test]
    fn a_sequence_may_be_divided_anywhere() {
        let bytes = "x\x1b[38;5;1mé\x1b]8;;u\x07y\u{202e}z\n".as_bytes();
        for cut in 0..bytes.len() {
            let mut filter = TerminalFilter::default();
            let mut passed = filter.pass(&bytes[..cut]);
            passed.extend(filter.pass(&bytes[cut..]));
            assert_eq!(String::from_utf8(passed).unwrap(), "x\x1b[38;5;1méyz\n", "cut at {cut}");
        }
    }
}
