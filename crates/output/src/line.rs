use std::borrow::Cow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::line_no::LineNo;
use super::render::{OpenEscape, Render, clean_after};
use super::source::MemberNo;
use super::stream::Stream;

/// Milliseconds since the Unix epoch, supplied by the caller.
pub type Timestamp = u64;

/// The time of a timestamp.
pub fn time_of(timestamp: Timestamp) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(timestamp)
}

/// The timestamp of a time; 0 before the epoch.
pub fn timestamp_of(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A piece of a stream's bytes: borrowed, unless it wraps around the end of the circular storage.
pub type Bytes<'a> = Cow<'a, [u8]>;

/// One kept line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingLine<'a> {
    /// Its number in the job's output.
    pub line_no: LineNo,
    /// Its stream.
    pub stream: Stream,
    /// The member of a fleet that printed it.
    pub member: Option<MemberNo>,
    /// When its end arrived.
    pub at: Timestamp,
    /// Whether the line continues the previous line of its stream, which was cut because of its
    /// length.
    pub continuation: bool,
    /// Its raw bytes without the LF or CRLF that ended it.
    pub text: Bytes<'a>,
    /// The LF or CRLF that ended it. Empty if it was cut, or if its stream ended.
    pub terminator: &'static str,
    /// The escape sequence that its first bytes belong to, if it was cut inside one.
    pub(super) escape: OpenEscape,
}

impl RingLine<'_> {
    /// The line as text, without its end.
    pub fn render(&self, render: Render) -> Cow<'_, str> {
        match render {
            Render::Clean => clean_after(self.escape, &self.text),
            Render::Raw => String::from_utf8_lossy(&self.text),
        }
    }

    /// The line end as text. Empty if the line was cut, or its stream ended within it.
    pub fn line_end(&self, render: Render) -> &'static str {
        match (self.terminator, render) {
            ("\r\n", Render::Clean) => "\n",
            (terminator, _) => terminator,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_counts_milliseconds_since_1970() {
        let time = UNIX_EPOCH + Duration::from_micros(1_500_999);

        assert_eq!(timestamp_of(time), 1500);
        assert_eq!(time_of(1500), UNIX_EPOCH + Duration::from_millis(1500));
        assert_eq!(timestamp_of(UNIX_EPOCH - Duration::from_secs(1)), 0);
    }
}
