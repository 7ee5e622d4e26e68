//! Names of keys, and the bytes that a terminal sends for them.

use crate::output::TerminalModes;

/// The bytes that a terminal in these modes sends for a named key. `None` if there is no such key.
///
/// Names are case-insensitive: `ctrl+a` … `ctrl+z`, `esc`, `tab`, `enter`, `space`, `backspace`,
/// `delete`, the arrows `up`, `down`, `right`, `left`, `home`, `end`, `pageup`, `pagedown`, `f1` …
/// `f12`. The sequences are xterm's. `enter` is the byte that ends a line: CR on a terminal, LF in
/// a pipe.
pub fn key_bytes(name: &str, enter: u8, modes: TerminalModes) -> Option<Vec<u8>> {
    let name = name.trim().to_ascii_lowercase().replace([' ', '_', '-'], "");
    if let Some(&[letter @ b'a'..=b'z']) = name.strip_prefix("ctrl+").map(str::as_bytes) {
        return Some(vec![letter - b'a' + 1]);
    }
    let bytes: &[u8] = match name.as_str() {
        "esc" | "escape" => b"\x1b",
        "tab" => b"\t",
        "enter" | "return" => return Some(vec![enter]),
        "space" => b" ",
        "backspace" => b"\x7f",
        "delete" => b"\x1b[3~",
        "up" => return Some(cursor_key(b'A', modes)),
        "down" => return Some(cursor_key(b'B', modes)),
        "right" => return Some(cursor_key(b'C', modes)),
        "left" => return Some(cursor_key(b'D', modes)),
        "home" => return Some(cursor_key(b'H', modes)),
        "end" => return Some(cursor_key(b'F', modes)),
        "pageup" => b"\x1b[5~",
        "pagedown" => b"\x1b[6~",
        "f1" => b"\x1bOP",
        "f2" => b"\x1bOQ",
        "f3" => b"\x1bOR",
        "f4" => b"\x1bOS",
        "f5" => b"\x1b[15~",
        "f6" => b"\x1b[17~",
        "f7" => b"\x1b[18~",
        "f8" => b"\x1b[19~",
        "f9" => b"\x1b[20~",
        "f10" => b"\x1b[21~",
        "f11" => b"\x1b[23~",
        "f12" => b"\x1b[24~",
        _ => return None,
    };
    Some(bytes.to_vec())
}

fn cursor_key(letter: u8, modes: TerminalModes) -> Vec<u8> {
    let introducer = if modes.application_cursor { b'O' } else { b'[' };
    vec![0x1b, introducer, letter]
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAIN: TerminalModes = TerminalModes {
        application_cursor: false,
        application_keypad: false,
        bracketed_paste: false,
    };

    #[test]
    fn arrows_follow_the_cursor_mode() {
        let application = TerminalModes {
            application_cursor: true,
            ..PLAIN
        };
        assert_eq!(key_bytes("down", b'\r', PLAIN), Some(b"\x1b[B".to_vec()));
        assert_eq!(
            key_bytes("down", b'\r', application),
            Some(b"\x1bOB".to_vec())
        );
        assert_eq!(
            key_bytes("end", b'\r', application),
            Some(b"\x1bOF".to_vec())
        );
        assert_eq!(
            key_bytes("delete", b'\r', application),
            Some(b"\x1b[3~".to_vec())
        );
    }

    #[test]
    fn names_are_read_in_any_usual_spelling() {
        assert_eq!(key_bytes("ctrl+c", b'\n', PLAIN), Some(vec![3]));
        assert_eq!(key_bytes("Ctrl+Z", b'\n', PLAIN), Some(vec![26]));
        assert_eq!(
            key_bytes("Page Up", b'\n', PLAIN),
            key_bytes("pageup", b'\n', PLAIN)
        );
        assert_eq!(key_bytes("up", b'\n', PLAIN), Some(b"\x1b[A".to_vec()));
    }

    #[test]
    fn an_unknown_key_has_no_bytes() {
        for name in ["", "ctrl+", "ctrl+1", "ctrl+ab", "f13", "hyper"] {
            assert_eq!(key_bytes(name, b'\n', PLAIN), None, "{name:?}");
        }
    }
}
