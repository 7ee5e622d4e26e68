use crate::output::{Line, LineNo, Render, Stream, Timestamp};

/// One line, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLine {
    /// Its number.
    pub line_no: LineNo,
    /// Its stream.
    pub stream: Stream,
    /// When its end arrived.
    pub at: Timestamp,
    /// Whether the line continues an overlong one.
    pub continuation: bool,
    /// Its rendered text.
    pub text: String,
}

/// Number of invisible bytes that cost as much as one visible byte.
const RAW_FOR_ONE: usize = 16;

impl PageLine {
    /// Renders a line.
    pub(crate) fn of(line: &Line<'_>, render: Render) -> Self {
        Self {
            line_no: line.line_no,
            stream: line.stream,
            at: line.at,
            continuation: line.continuation,
            text: line.render(render).into_owned(),
        }
    }

    /// Cost of showing it. Escape sequences cost something as well, because they had to be
    /// examined.
    pub(crate) fn cost(&self, raw: &Line<'_>) -> usize {
        self.text.len().max(raw.text.len() / RAW_FOR_ONE)
    }
}
