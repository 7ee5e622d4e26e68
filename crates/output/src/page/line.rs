use std::time::SystemTime;

use crate::{LineNo, MemberNo, Render, RingLine, Stream, Timestamp, time_of};

/// One line, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// Its number.
    pub line_no: LineNo,
    /// Its stream.
    pub stream: Stream,
    /// The member of a fleet that printed it. Its name is not part of the text.
    pub member: Option<MemberNo>,
    /// When its end arrived. Converted only on request: a page may have many lines.
    pub timestamp: Timestamp,
    /// Whether the line continues an overlong one.
    pub continuation: bool,
    /// Its rendered text.
    pub text: String,
}

/// Number of invisible bytes that cost as much as one visible byte.
const RAW_FOR_ONE: usize = 16;
/// Estimated bytes of the name that is shown before a member's line.
const NAME_BYTES: usize = 16;

impl Line {
    /// Renders a line.
    pub(crate) fn of(line: &RingLine<'_>, render: Render) -> Self {
        Self {
            line_no: line.line_no,
            stream: line.stream,
            member: line.member,
            timestamp: line.at,
            continuation: line.continuation,
            text: line.render(render).into_owned(),
        }
    }

    /// When its end arrived.
    pub fn at(&self) -> SystemTime {
        time_of(self.timestamp)
    }

    /// Cost of showing it. Escape sequences cost something as well, because they had to be
    /// examined.
    pub(crate) fn cost(&self, raw: &RingLine<'_>) -> usize {
        self.shown_bytes().max(raw.text.len() / RAW_FOR_ONE)
    }

    /// Bytes of the line as it is shown, with an estimate for the name of its member.
    pub(crate) fn shown_bytes(&self) -> usize {
        let name = if self.member.is_some() { NAME_BYTES } else { 0 };
        name + self.text.len()
    }
}
