//! Lines of the log, each with the hash of the line before.

use std::fmt;
use std::str::FromStr;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::event::Event;

/// SHA-256 of a line, without its line feed. In text, 64 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct LineHash([u8; 32]);

/// The newest line of a log. In text, `SEQ:HASH`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogHead {
    /// Its sequence number.
    pub seq: u64,
    /// Its hash.
    pub hash: LineHash,
}

/// A line that was read.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct StoredLine {
    /// Sequence number. The first line of a log has 1.
    pub seq: u64,
    /// Hash of the line before.
    pub prev: LineHash,
    /// When it was written, as in RFC 3339, in UTC.
    pub time: String,
    /// The recorded event.
    #[serde(flatten)]
    pub event: Event,
}

/// A line to write.
#[derive(Serialize)]
struct NewLine<'a> {
    seq: u64,
    prev: LineHash,
    time: String,
    #[serde(flatten)]
    event: &'a Event,
}

impl LogHead {
    /// The head of a log without lines.
    pub const START: Self = Self {
        seq: 0,
        hash: LineHash([0; 32]),
    };

    /// The line for an event, without a line feed, and the head after it.
    pub(super) fn append(self, event: &Event, now: SystemTime) -> (String, Self) {
        let seq = self.seq + 1;
        let line = NewLine {
            seq,
            prev: self.hash,
            time: humantime::format_rfc3339_millis(now).to_string(),
            event,
        };
        let line = visible_text(&serde_json::to_string(&line).expect("an event is JSON"));
        let hash = LineHash::of(line.as_bytes());
        (line, Self { seq, hash })
    }
}

/// Escapes all characters that would change how a terminal shows a line, as JSON does in a string.
pub fn visible_text(json: &str) -> String {
    let mut shown = String::with_capacity(json.len());
    for character in json.chars() {
        if is_invisible(character) {
            // Two escapes for a character beyond the first 65,536, as in JSON.
            let units = character.encode_utf16(&mut [0; 2]).to_vec();
            shown.extend(units.iter().map(|unit| format!("\\u{unit:04x}")));
        } else {
            shown.push(character);
        }
    }
    shown
}

/// Control characters, those without a width, and those that change the direction of a text (Unicode
/// TR9).
fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{ad}'
                | '\u{115f}' | '\u{1160}' | '\u{180e}' | '\u{3164}' | '\u{ffa0}'
                | '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}'
                | '\u{e0000}'..='\u{e007f}'
        )
}

impl LineHash {
    /// The hash of a line.
    pub fn of(line: &[u8]) -> Self {
        Self(Sha256::digest(line).into())
    }
}

impl fmt::Display for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for LineHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not a hash, or not a head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("use SEQ:HASH, such as 12:9f86d0…, with 64 hexadecimal digits")]
pub struct BadHead;

impl FromStr for LineHash {
    type Err = BadHead;

    fn from_str(text: &str) -> Result<Self, BadHead> {
        let mut hash = [0; 32];
        if text.len() != 2 * hash.len() || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(BadHead);
        }
        for (byte, digits) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let digits = std::str::from_utf8(digits).map_err(|_| BadHead)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| BadHead)?;
        }
        Ok(Self(hash))
    }
}

impl Serialize for LineHash {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for LineHash {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl fmt::Display for LogHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seq, self.hash)
    }
}

impl FromStr for LogHead {
    type Err = BadHead;

    fn from_str(text: &str) -> Result<Self, BadHead> {
        let (seq, hash) = text.split_once(':').ok_or(BadHead)?;
        Ok(Self {
            seq: seq.parse().map_err(|_| BadHead)?,
            hash: hash.parse()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_names_its_number_and_the_hash_of_the_line_before() {
        let event = Event::Missed { lines: 2 };
        let (first, head) = LogHead::START.append(&event, SystemTime::UNIX_EPOCH);
        let (second, _) = head.append(&event, SystemTime::UNIX_EPOCH);

        let zeros = "0".repeat(64);
        assert_eq!(
            first,
            format!(
                r#"{{"seq":1,"prev":"{zeros}","time":"1970-01-01T00:00:00.000Z","event":"missed","lines":2}}"#
            )
        );
        let read: StoredLine = serde_json::from_str(&second).unwrap();
        assert_eq!((read.seq, read.prev), (2, LineHash::of(first.as_bytes())));
        assert_eq!(read.event, event);
    }

    #[test]
    fn a_head_is_read_back_from_its_text() {
        let (_, head) = LogHead::START.append(&Event::Missed { lines: 1 }, SystemTime::UNIX_EPOCH);

        assert_eq!(head.to_string().parse(), Ok(head));
        for bad in ["", "1", "1:", "x:00", "1:zz", "1:é0000000"] {
            assert_eq!(bad.parse::<LogHead>(), Err(BadHead), "{bad}");
        }
    }
}
