/// What a terminal sends for a named key, or none when there is no such key.
///
/// Names are read in any case: `ctrl+a` … `ctrl+z`, `esc`, `tab`, `enter`, `space`, `backspace`, `delete`, the arrows `up`,
/// `down`, `right`, `left`, `home`, `end`, `pageup`, `pagedown`, `f1` … `f12`. The sequences are xterm's; `enter` is what
/// ends a line there: CR on a terminal, LF into a pipe.
pub fn key_bytes(name: &str, enter: u8) -> Option<Vec<u8>> {
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
        "up" => b"\x1b[A",
        "down" => b"\x1b[B",
        "right" => b"\x1b[C",
        "left" => b"\x1b[D",
        "home" => b"\x1b[H",
        "end" => b"\x1b[F",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_in_any_usual_spelling() {
        assert_eq!(key_bytes("ctrl+c", b'\n'), Some(vec![3]));
        assert_eq!(key_bytes("Ctrl+Z", b'\n'), Some(vec![26]));
        assert_eq!(key_bytes("Page Up", b'\n'), key_bytes("pageup", b'\n'));
        assert_eq!(key_bytes("up", b'\n'), Some(b"\x1b[A".to_vec()));
    }

    #[test]
    fn what_is_no_key_has_no_bytes() {
        for name in ["", "ctrl+", "ctrl+1", "ctrl+ab", "f13", "hyper"] {
            assert_eq!(key_bytes(name, b'\n'), None, "{name:?}");
        }
    }
}
