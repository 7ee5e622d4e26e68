//! Recordings for asciinema and its web player: asciicast, versions 2 and 3.
//!
//! The first line is a header, each other line an event: its time, a code and its data. Version 2 counts
//! seconds from the start, version 3 from the event before. (docs.asciinema.org/manual/asciicast)

use serde_json::{Value, json};

use sshjobs_core::jobs::{Stream, TerminalSize, Timestamp};

/// A version of the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CastVersion {
    /// Understood by every player.
    V2,
    /// Has the exit status.
    V3,
}

/// The first line of a recording.
pub(super) struct CastHeader<'a> {
    pub(super) size: TerminalSize,
    /// Time of the start, in milliseconds since the Unix epoch.
    pub(super) started_at: Timestamp,
    pub(super) command: &'a str,
    pub(super) title: Option<&'a str>,
}

/// Writes the lines of a recording.
pub(super) struct Asciicast {
    version: CastVersion,
    /// Whether the job ran on a terminal. If not, a line feed does not return to the first column.
    has_terminal: bool,
    started_at: Timestamp,
    /// Milliseconds from the start to the last event. Intervals are differences of whole times, so that
    /// they don't drift.
    last: u64,
    /// The begin of a character that is not complete yet, of each stream.
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

impl Asciicast {
    pub(super) fn new(version: CastVersion, has_terminal: bool, started_at: Timestamp) -> Self {
        Self {
            version,
            has_terminal,
            started_at,
            last: 0,
            stdout: Vec::new(),
            stderr: Vec::new(),
        }
    }

    pub(super) fn header(&self, header: &CastHeader<'_>) -> String {
        let CastHeader {
            size,
            started_at,
            command,
            title,
        } = header;
        let mut fields = match self.version {
            CastVersion::V2 => json!({"version": 2, "width": size.cols, "height": size.rows}),
            CastVersion::V3 => {
                json!({"version": 3, "term": {"cols": size.cols, "rows": size.rows}})
            }
        };
        fields["timestamp"] = (started_at / 1000).into();
        fields["command"] = (*command).into();
        if let Some(title) = title {
            fields["title"] = (*title).into();
        }
        json_line(&fields)
    }

    /// Output. Empty if it is only a part of a character.
    pub(super) fn output(&mut self, at: Timestamp, stream: Stream, bytes: &[u8]) -> String {
        let unfinished = match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        };
        unfinished.extend_from_slice(bytes);
        let whole = whole_characters(unfinished);
        let rest = unfinished.split_off(whole);
        let text = String::from_utf8_lossy(unfinished).into_owned();
        *unfinished = rest;
        if text.is_empty() {
            return String::new();
        }
        let text = if self.has_terminal {
            text
        } else {
            text.replace("\r\n", "\n").replace('\n', "\r\n")
        };
        self.event(at, "o", &text)
    }

    /// The rest of the output, which ends within a character.
    pub(super) fn rest(&mut self, at: Timestamp) -> String {
        let stdout = std::mem::take(&mut self.stdout);
        let stderr = std::mem::take(&mut self.stderr);
        let rests = [stdout, stderr].into_iter().filter(|rest| !rest.is_empty());
        rests.map(|rest| self.event(at, "o", &String::from_utf8_lossy(&rest))).collect()
    }

    /// A new size of the terminal.
    pub(super) fn resize(&mut self, at: Timestamp, size: TerminalSize) -> String {
        self.event(at, "r", &format!("{}x{}", size.cols, size.rows))
    }

    /// A note for the viewer, such as that output is missing.
    pub(super) fn marker(&mut self, at: Timestamp, text: &str) -> String {
        self.event(at, "m", text)
    }

    /// The exit status. Version 2 has none.
    pub(super) fn exit(&mut self, at: Timestamp, status: u32) -> String {
        match self.version {
            CastVersion::V2 => String::new(),
            CastVersion::V3 => self.event(at, "x", &status.to_string()),
        }
    }

    fn event(&mut self, at: Timestamp, code: &str, data: &str) -> String {
        // A clock may have been set back.
        let now = at.saturating_sub(self.started_at).max(self.last);
        let shown = match self.version {
            CastVersion::V2 => now,
            CastVersion::V3 => now - self.last,
        };
        self.last = now;
        let seconds = format!("{}.{:03}", shown / 1000, shown % 1000);
        format!(
            "[{seconds}, {}, {}]\n",
            json!(code),
            safe_json(&json!(data))
        )
    }
}

/// Number of bytes without an unfinished character at the end.
fn whole_characters(bytes: &[u8]) -> usize {
    // A character has at most four bytes.
    let tail = bytes.len().saturating_sub(3);
    for start in tail..bytes.len() {
        if let Err(error) = std::str::from_utf8(&bytes[start..])
            && error.valid_up_to() == 0
            && error.error_len().is_none()
        {
            return start;
        }
    }
    bytes.len()
}

/// A line of JSON.
pub(super) fn json_line(value: &Value) -> String {
    safe_json(value) + "\n"
}

/// JSON without any control character: serde_json leaves those above ASCII as they are, and some
/// terminals act on them.
fn safe_json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(is_late_control) {
        return text;
    }
    let mut safe = String::with_capacity(text.len());
    for character in text.chars() {
        if is_late_control(character) {
            // Only strings contain such characters.
            safe.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            safe.push(character);
        }
    }
    safe
}

fn is_late_control(character: char) -> bool {
    matches!(character, '\u{7f}'..='\u{9f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(lines: &str) -> Vec<Value> {
        lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    #[test]
    fn a_character_that_is_split_at_any_byte_arrives_whole() {
        let text = "aé€😀\n";
        for cut in 0..=text.len() {
            let mut cast = Asciicast::new(CastVersion::V2, true, 0);
            let (first, rest) = text.as_bytes().split_at(cut);
            let lines =
                cast.output(0, Stream::Stdout, first) + &cast.output(0, Stream::Stdout, rest);
            let shown: String = events(&lines)
                .iter()
                .map(|event| event[2].as_str().unwrap().to_owned())
                .collect();
            assert_eq!(shown, text, "cut at {cut}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_as_such_and_hold_nothing_back() {
        let mut cast = Asciicast::new(CastVersion::V2, true, 0);
        let lines = cast.output(0, Stream::Stdout, b"\xff\xfea\x80");
        assert_eq!(events(&lines)[0][2], "\u{fffd}\u{fffd}a\u{fffd}");

        let first_byte = cast.output(1, Stream::Stderr, b"\xc3");
        assert_eq!(first_byte, "");
        assert_eq!(events(&cast.rest(2))[0][2], "\u{fffd}");
    }

    #[test]
    fn times_count_from_the_start_or_from_the_event_before() {
        let times = |version| {
            let mut cast = Asciicast::new(version, true, 1000);
            let lines: String = [1000, 1333, 1667, 1500]
                .map(|at| cast.output(at, Stream::Stdout, b"x"))
                .concat();
            let lines = lines + &cast.exit(2000, 3);
            events(&lines)
                .iter()
                .map(|event| event[0].as_f64().unwrap())
                .collect::<Vec<_>>()
        };
        assert_eq!(times(CastVersion::V2), [0.0, 0.333, 0.667, 0.667]);
        assert_eq!(times(CastVersion::V3), [0.0, 0.333, 0.334, 0.0, 0.333]);
    }

    #[test]
    fn no_control_character_is_written_as_it_is() {
        let mut cast = Asciicast::new(CastVersion::V2, true, 0);
        let lines = cast.output(0, Stream::Stdout, "\u{1b}[31m\u{9b}\u{7f}".as_bytes());
        assert!(!lines.trim_end().contains(char::is_control), "{lines:?}");
        assert_eq!(events(&lines)[0][2], "\u{1b}[31m\u{9b}\u{7f}");
    }

    #[test]
    fn without_a_terminal_each_line_begins_in_the_first_column() {
        let mut cast = Asciicast::new(CastVersion::V2, false, 0);
        let lines = cast.output(0, Stream::Stdout, b"a\nb\r\n");
        assert_eq!(events(&lines)[0][2], "a\r\nb\r\n");
    }
}
