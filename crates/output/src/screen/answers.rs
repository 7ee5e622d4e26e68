//! Window title and terminal queries: sequences that do not change the screen.
//!
//! Programs ask for the device's attributes (DA, ECMA-48 8.3.24) and status (DSR, 8.3.35), and
//! wait for the answer on their stdin. The answers are those of a VT220 with colours, as xterm
//! gives them.

use vt100::{Callbacks, Screen};

use crate::is_harmless;

/// Longest title that is kept, in characters.
const LONGEST_TITLE: usize = 200;
/// Maximum bytes of answers that wait to be taken: a hostile program could ask without end.
const MOST_ANSWERS: usize = 4 << 10;

/// Class 62 (VT220) with 22 (colour).
const PRIMARY_ATTRIBUTES: &str = "\x1b[?62;22c";
/// A VT220 without a version.
const SECONDARY_ATTRIBUTES: &str = "\x1b[>1;0;0c";
const IS_READY: &str = "\x1b[0n";

/// The title that a program has set, and the answers to its questions.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) title: String,
    answers: Vec<u8>,
}

impl Answers {
    /// The answers since the last call.
    pub(super) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.answers)
    }

    fn answer(&mut self, answer: &str) {
        if self.answers.len() + answer.len() <= MOST_ANSWERS {
            self.answers.extend_from_slice(answer.as_bytes());
        }
    }
}

impl Callbacks for Answers {
    fn set_window_title(&mut self, _: &mut Screen, title: &[u8]) {
        let title = String::from_utf8_lossy(title);
        self.title = title.chars().filter(|&c| is_harmless(c)).take(LONGEST_TITLE).collect();
    }

    fn unhandled_csi(
        &mut self,
        screen: &mut Screen,
        prefix: Option<u8>,
        _: Option<u8>,
        parameters: &[&[u16]],
        command: char,
    ) {
        let parameter = parameters.first().and_then(|values| values.first()).copied().unwrap_or(0);
        match (prefix, command, parameter) {
            (None, 'c', 0) => self.answer(PRIMARY_ATTRIBUTES),
            (Some(b'>'), 'c', 0) => self.answer(SECONDARY_ATTRIBUTES),
            (None, 'n', 5) => self.answer(IS_READY),
            (None, 'n', 6) => self.answer(&cursor_position(screen, "")),
            (Some(b'?'), 'n', 6) => self.answer(&cursor_position(screen, "?")),
            _ => {}
        }
    }
}

/// The cursor position report (CPR). Columns and rows count from 1.
fn cursor_position(screen: &Screen, prefix: &str) -> String {
    let (row, col) = screen.cursor_position();
    let (_, cols) = screen.size();
    // `vt100` puts the cursor one column past the end; terminals report the last column.
    let col = col.min(cols.get() - 1);
    format!("\x1b[{prefix}{};{}R", row + 1, col + 1)
}
