//! Names of keys, and the bytes that a terminal sends for them.

use sshjobs_output::TerminalModes;

/// The bytes that a terminal in these modes sends for a named key. `None` if there is no such key.
///
/// Names are case-insensitive: `ctrl+a` … `ctrl+z` (also `Ctrl-A`, `C-a` and `^A`), `alt+x` for any
/// character, `esc`, `tab`, `enter`, `space`, `backspace`, `delete`, `insert`, the arrows `up`,
/// `down`, `right`, `left`, `home`, `end`, `pageup`, `pagedown`, `f1` … `f12`. The sequences are
/// xterm's. `enter` is the byte that ends a line: CR on a terminal, LF in a pipe.
pub fn key_bytes(name: &str, enter: u8, modes: TerminalModes) -> Option<Vec<u8>> {
    let name = name.trim();
    if let Some(character) = after_prefix(name, &["alt+", "alt-", "m-"])
        && character.chars().count() == 1
    {
        return Some(format!("\x1b{character}").into_bytes());
    }
    let name = name.to_ascii_lowercase();
    if let Some(key) = after_prefix(&name, &["ctrl+", "ctrl-", "control+", "c-", "^"]) {
        return control_key(key);
    }

    let bytes: &[u8] = match name.replace([' ', '_', '-'], "").as_str() {
        "esc" | "escape" => b"\x1b",
        "tab" => b"\t",
        "backtab" | "shift+tab" => b"\x1b[Z",
        "enter" | "return" | "cr" => return Some(vec![enter]),
        "space" => b" ",
        "backspace" | "bs" => b"\x7f",
        "delete" | "del" => b"\x1b[3~",
        "insert" | "ins" => b"\x1b[2~",
        "up" => return Some(cursor_key(b'A', modes)),
        "down" => return Some(cursor_key(b'B', modes)),
        "right" => return Some(cursor_key(b'C', modes)),
        "left" => return Some(cursor_key(b'D', modes)),
        "home" => return Some(cursor_key(b'H', modes)),
        "end" => return Some(cursor_key(b'F', modes)),
        "pageup" | "pgup" => b"\x1b[5~",
        "pagedown" | "pgdn" | "pgdown" => b"\x1b[6~",
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

/// The rest of a name after one of these prefixes, in any case.
fn after_prefix<'a>(name: &'a str, prefixes: &[&str]) -> Option<&'a str> {
    prefixes.iter().find_map(|prefix| {
        let (start, rest) = name.split_at_checked(prefix.len())?;
        start.eq_ignore_ascii_case(prefix).then_some(rest)
    })
}

/// The byte that Ctrl makes of a key (ECMA-48, C0), in lower case.
fn control_key(key: &str) -> Option<Vec<u8>> {
    match key.as_bytes() {
        [letter @ b'a'..=b'z'] => Some(vec![letter - b'a' + 1]),
        [symbol @ b'['..=b'_'] => Some(vec![symbol - b'@']),
        [b'@'] | b"space" => Some(vec![0]),
        [b'?'] => Some(vec![0x7f]),
        _ => None,
    }
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
        for name in ["Ctrl-D", "C-d", "^D", "ctrl+d", "CTRL+D", "^d"] {
            assert_eq!(key_bytes(name, b'\r', PLAIN), Some(vec![4]), "{name}");
        }
        assert_eq!(key_bytes("ctrl+[", b'\r', PLAIN), Some(vec![0x1b]));
        assert_eq!(key_bytes("M-x", b'\r', PLAIN), Some(b"\x1bx".to_vec()));
        assert_eq!(key_bytes("alt+X", b'\r', PLAIN), Some(b"\x1bX".to_vec()));
        assert_eq!(key_bytes("Backspace", b'\r', PLAIN), Some(vec![0x7f]));
        assert_eq!(
            key_bytes("pgdn", b'\r', PLAIN),
            key_bytes("Page-Down", b'\r', PLAIN)
        );
        assert_eq!(
            key_bytes("Page Up", b'\n', PLAIN),
            key_bytes("pageup", b'\n', PLAIN)
        );
        assert_eq!(key_bytes("up", b'\n', PLAIN), Some(b"\x1b[A".to_vec()));
    }

    #[test]
    fn an_unknown_key_has_no_bytes() {
        for name in [
            "", "^", "ctrl+", "ctrl+1", "ctrl+ab", "alt+", "f13", "hyper", "é",
        ] {
            assert_eq!(key_bytes(name, b'\n', PLAIN), None, "{name:?}");
        }
    }
}
