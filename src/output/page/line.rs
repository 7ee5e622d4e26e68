use crate::output::{Line, LineNo, Render, Stream, Timestamp};

/// One line, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageLine {
    /// Its number.
    pub line_no: LineNo,
    /// The stream it came on.
    pub stream: Stream,
    /// When its end arrived.
    pub at: Timestamp,
    /// Whether the line continues an overlong one.
    pub continuation: bool,
    /// Its rendered text.
    pub text: String,
}

/// Bytes that show nothing and together cost as much as one that is shown.
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

    /// What showing it costs. What was mostly escape sequences costs something as well: they had to be looked at.
    pub(crate) fn cost(&self, raw: &Line<'_>) -> usize {
        self.text.len().max(raw.text.len() / RAW_FOR_ONE)
    }
}
