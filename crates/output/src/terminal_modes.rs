//! Tracks terminal modes set by a program that change the bytes of keys and pasted text.
//!
//! The sequences are those of ECMA-48 and of xterm's "Control Sequences": `ESC [ ? N h` sets
//! private mode N, `ESC [ ? N l` resets it, `ESC =` and `ESC >` choose between application and
//! numeric keypad, `ESC c` resets everything, `ESC [ ! p` most of it.

use serde::{Deserialize, Serialize};

const ESCAPE: u8 = 0x1b;
/// Longest control sequence that is examined, in bytes. Programs set modes with a few digits.
const LONGEST_SEQUENCE: usize = 32;

/// The modes of a terminal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalModes {
    /// Arrows, Home and End are sent as `ESC O x` instead of `ESC [ x` (DECCKM, mode 1).
    pub application_cursor: bool,
    /// The keypad sends `ESC O x` instead of digits (DECPAM, mode 66).
    pub application_keypad: bool,
    /// Pasted text is enclosed in `ESC [ 200 ~` and `ESC [ 201 ~` (mode 2004).
    pub bracketed_paste: bool,
}

/// Finds changes of modes in a program's output, in any division into pieces.
#[derive(Clone, Debug, Default)]
pub struct ModeTracker {
    modes: TerminalModes,
    state: SequenceState,
}

/// Position within a sequence at the end of the previous piece.
#[derive(Clone, Debug, Default)]
enum SequenceState {
    #[default]
    Ground,
    /// After ESC.
    Escape,
    /// After `ESC [`, with the bytes since.
    Sequence(Vec<u8>),
}

impl ModeTracker {
    /// A tracker of a terminal that is in these modes already.
    pub fn starting_with(modes: TerminalModes) -> Self {
        Self {
            modes,
            state: SequenceState::Ground,
        }
    }

    /// The current modes.
    pub fn modes(&self) -> TerminalModes {
        self.modes
    }

    /// Processes the next piece of output.
    pub fn take(&mut self, mut output: &[u8]) {
        while !output.is_empty() {
            if matches!(self.state, SequenceState::Ground) {
                // Most output has no sequences at all.
                let Some(escape) = memchr::memchr(ESCAPE, output) else { return };
                output = &output[escape + 1..];
                self.state = SequenceState::Escape;
                continue;
            }
            self.take_byte(output[0]);
            output = &output[1..];
        }
    }

    /// Notes that output is missing: a sequence that had started does not continue.
    pub fn skip(&mut self) {
        self.state = SequenceState::Ground;
    }

    fn take_byte(&mut self, byte: u8) {
        let state = std::mem::take(&mut self.state);
        self.state = match (state, byte) {
            // An ESC aborts a sequence, as in a terminal.
            (_, ESCAPE) => SequenceState::Escape,
            (SequenceState::Ground, _) => SequenceState::Ground,
            (SequenceState::Escape, b'[') => SequenceState::Sequence(Vec::new()),
            (SequenceState::Escape, other) => {
                self.end_of_escape(other);
                SequenceState::Ground
            }
            (SequenceState::Sequence(parameters), b'@'..=b'~') => {
                self.end_of_sequence(&parameters, byte);
                SequenceState::Ground
            }
            // Its rest is read as text, which changes no mode.
            (SequenceState::Sequence(parameters), _) if parameters.len() == LONGEST_SEQUENCE => {
                SequenceState::Ground
            }
            (SequenceState::Sequence(mut parameters), _) => {
                parameters.push(byte);
                SequenceState::Sequence(parameters)
            }
        };
    }

    fn end_of_escape(&mut self, byte: u8) {
        match byte {
            b'=' => self.modes.application_keypad = true,
            b'>' => self.modes.application_keypad = false,
            b'c' => self.modes = TerminalModes::default(),
            // Also the start of a string such as a title. Its text is read as ordinary output.
            _ => {}
        }
    }

    fn end_of_sequence(&mut self, parameters: &[u8], last: u8) {
        match (parameters, last) {
            ([b'?', numbers @ ..], b'h') => self.set(numbers, true),
            ([b'?', numbers @ ..], b'l') => self.set(numbers, false),
            (b"!", b'p') => {
                self.modes.application_cursor = false;
                self.modes.application_keypad = false;
            }
            _ => {}
        }
    }

    fn set(&mut self, numbers: &[u8], is_set: bool) {
        for number in numbers.split(|&byte| byte == b';') {
            match number {
                b"1" => self.modes.application_cursor = is_set,
                b"66" => self.modes.application_keypad = is_set,
                b"2004" => self.modes.bracketed_paste = is_set,
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn modes_after(pieces: &[&[u8]]) -> TerminalModes {
        let mut tracker = ModeTracker::default();
        for piece in pieces {
            tracker.take(piece);
        }
        tracker.modes()
    }

    const ALL: TerminalModes = TerminalModes {
        application_cursor: true,
        application_keypad: true,
        bracketed_paste: true,
    };

    #[test]
    fn modes_are_set_however_the_output_is_cut() {
        let output = b"text\x1b[1;31m red \x1b[?1;2004h\x1b=more";
        for cut in 0..=output.len() {
            let (before, after) = output.split_at(cut);
            assert_eq!(modes_after(&[before, after]), ALL, "cut at {cut}");
        }
    }

    #[test]
    fn modes_are_reset_one_by_one_and_together() {
        let set: &[u8] = b"\x1b[?1;66;2004h";
        let keypad_off = TerminalModes {
            application_keypad: false,
            ..ALL
        };
        let cursor_off = TerminalModes {
            application_cursor: false,
            ..ALL
        };
        let only_paste = TerminalModes {
            bracketed_paste: true,
            ..TerminalModes::default()
        };
        assert_eq!(modes_after(&[set, b"\x1b>"]), keypad_off);
        assert_eq!(modes_after(&[set, b"\x1b[?1l"]), cursor_off);
        assert_eq!(modes_after(&[set, b"\x1b[!p"]), only_paste);
        assert_eq!(modes_after(&[set, b"\x1bc"]), TerminalModes::default());
    }

    #[test]
    fn a_tracker_starts_with_the_modes_of_its_terminal() {
        let mut tracker = ModeTracker::starting_with(ALL);
        tracker.take(b"text\x1b[?1l");
        let expected = TerminalModes {
            application_cursor: false,
            ..ALL
        };
        assert_eq!(tracker.modes(), expected);
    }

    #[test]
    fn a_sequence_ends_where_output_is_missing() {
        let mut tracker = ModeTracker::default();
        tracker.take(b"\x1b[?");
        tracker.skip();
        tracker.take(b"1h");
        assert_eq!(tracker.modes(), TerminalModes::default());
    }

    #[test]
    fn the_longest_sequence_is_still_examined() {
        let zeros = "0".repeat(LONGEST_SEQUENCE - "?;1".len());
        let longest = format!("\x1b[?{zeros};1h");
        assert!(modes_after(&[longest.as_bytes()]).application_cursor);
        let longer = format!("\x1b[?{zeros}0;1h");
        assert!(!modes_after(&[longer.as_bytes()]).application_cursor);
    }

    #[test]
    fn what_looks_like_a_mode_and_is_none_changes_nothing() {
        let long = [b"\x1b[?".as_slice(), &[b'0'; LONGEST_SEQUENCE + 1], b";1h"].concat();
        for output in [
            b"\x1b[1h".as_slice(),
            b"[?1h",
            b"\x1b[?11h",
            b"\x1b[?\x1b1h",
            b"\x1b]?1h",
            &long,
        ] {
            assert_eq!(
                modes_after(&[output]),
                TerminalModes::default(),
                "{output:?}"
            );
        }
    }
}
