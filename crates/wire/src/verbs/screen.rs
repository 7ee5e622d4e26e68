//! The screen of a terminal job, as `read` and `write` return it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::span::StyledSpan;
use crate::Service;
use crate::error::Error;
use crate::leave_out::{is_false, is_zero};
use sshjobs_core::jobs::{ReadableJob, ScreenSpan, ScreenView, ScreenWait};

/// Maximum bytes of the text of a screen. Only the largest terminals have more.
const MOST_BYTES: usize = 256 << 10;

/// What a job's terminal shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Screen {
    /// Rows from the top. Trailing spaces and trailing empty rows are omitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rows: Option<Vec<String>>,
    /// Only the rows that may have changed since since_version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed_rows: Option<Vec<ChangedRow>>,
    /// Rows whose text or colours may have changed, in pieces of one style. With render spans.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub styled_rows: Option<Vec<StyledRow>>,
    /// Parts that stand out, such as a selected item: reversed, or on a background of their own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reversed: Vec<ScreenPart>,
    /// Parts whose colours differ from those of their row.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub highlighted: Vec<ScreenPart>,
    /// Where the cursor is.
    pub cursor: CursorAt,
    /// Size of the terminal.
    pub size: Size,
    /// Title of the window.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub title: String,
    /// Whether a full-screen program has the screen (the alternate screen).
    #[serde(default, skip_serializing_if = "is_false")]
    pub alternate: bool,
    /// Version of the screen; pass it as since_version to get only what changed.
    pub version: u64,
    /// Number of rows that are too many for one reply.
    #[serde(default, skip_serializing_if = "is_zero")]
    #[schemars(skip)]
    pub omitted_rows: u64,
    /// False if the start of the output is no longer available; parts of the screen may then be missing.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub from_start: bool,
}

/// A row of the screen in pieces of one style.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StyledRow {
    /// Its number; the top one is 1.
    pub row: u32,
    /// Its pieces. Together they are its text, with the spaces behind it that have a style.
    pub spans: Vec<StyledSpan>,
}

/// A row of the screen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ChangedRow {
    /// Its number; the top one is 1.
    pub row: u32,
    /// Its text.
    pub text: String,
}

/// A part of a row that stands out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ScreenPart {
    /// The row; the top one is 1.
    pub row: u32,
    /// The first column; the left one is 1.
    pub col: u32,
    /// The text.
    pub text: String,
}

/// Where the cursor is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct CursorAt {
    /// Its row; the top one is 1.
    pub row: u32,
    /// Its column; the left one is 1.
    pub col: u32,
    /// Whether the program hides it.
    #[serde(default, skip_serializing_if = "is_false")]
    pub hidden: bool,
}

/// Size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Size {
    /// Columns.
    pub cols: u32,
    /// Rows.
    pub rows: u32,
}

fn yes() -> bool {
    true
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde hands over references"
)]
fn is_true(truth: &bool) -> bool {
    *truth
}

/// Most highlighted parts of a reply: a program that colours every word has more.
const MOST_HIGHLIGHTED: usize = 100;

/// Highlighted parts that are not reversed ones, too.
fn without_doubles(mut highlighted: Vec<ScreenPart>, reversed: &[ScreenPart]) -> Vec<ScreenPart> {
    highlighted.retain(|part| !reversed.contains(part));
    highlighted.truncate(MOST_HIGHLIGHTED);
    highlighted
}

/// The rows whose look has changed since a version, as far as a reply has room.
pub(super) fn styled_rows(view: &ScreenView, since_version: Option<u64>) -> Vec<StyledRow> {
    let mut left = MOST_BYTES;
    let mut rows = Vec::new();
    for (row, content) in (1..).zip(&view.rows) {
        let cost: usize = content.styled.iter().map(|piece| STYLE_BYTES + piece.text.len()).sum();
        let is_wanted = since_version.is_none_or(|since| content.restyled_in > since);
        if is_wanted && cost <= left {
            left -= cost;
            let spans = content.styled.iter().cloned().map(StyledSpan::from).collect();
            rows.push(StyledRow { row, spans });
        }
    }
    rows
}

/// Estimated bytes of a piece beside its text.
const STYLE_BYTES: usize = 40;

impl Screen {
    /// A screen: all rows, or those that changed since a version.
    pub(crate) fn of(view: ScreenView, since_version: Option<u64>) -> Self {
        let wanted = since_version.unwrap_or(0);
        let is_whole = since_version.is_none();
        let mut left = MOST_BYTES;
        let mut shown = Vec::new();
        let mut reversed = Vec::new();
        let mut highlighted = Vec::new();
        let mut omitted_rows = 0;
        for (row, content) in (1..).zip(view.rows) {
            if !is_whole && content.changed_in <= wanted {
                continue;
            }
            let spans = content.reversed.iter().chain(&content.highlighted);
            let cost = content.text.len() + spans.map(|span| span.text.len()).sum::<usize>();
            if cost > left {
                omitted_rows += 1;
                continue;
            }
            left -= cost;
            let part = |span: ScreenSpan| ScreenPart {
                row,
                col: span.col,
                text: span.text,
            };
            reversed.extend(content.reversed.into_iter().map(part));
            highlighted.extend(content.highlighted.into_iter().map(part));
            shown.push(ChangedRow {
                row,
                text: content.text,
            });
        }
        let (rows, changed_rows) = if is_whole {
            let mut rows: Vec<String> = shown.into_iter().map(|row| row.text).collect();
            let used = rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1);
            rows.truncate(used);
            (Some(rows), None)
        } else {
            (None, Some(shown))
        };
        Self {
            rows,
            changed_rows,
            styled_rows: None,
            highlighted: without_doubles(highlighted, &reversed),
            reversed,
            cursor: CursorAt {
                row: view.cursor.row,
                col: view.cursor.col,
                hidden: !view.cursor.is_visible,
            },
            size: Size {
                cols: view.size.cols,
                rows: view.size.rows,
            },
            title: view.title,
            alternate: view.is_alternate,
            version: view.version,
            omitted_rows,
            from_start: view.is_from_start,
        }
    }

    /// Number of rows here.
    pub(crate) fn row_count(&self) -> u64 {
        let rows = self.rows.as_ref().map(Vec::len);
        let changed = self.changed_rows.as_ref().map(Vec::len);
        rows.or(changed).unwrap_or(0) as u64
    }
}

impl Service {
    /// The screen of a job, once the wait is over or the service closes.
    pub(crate) async fn screen_of(
        &self,
        job: &ReadableJob,
        wait: ScreenWait,
    ) -> Result<ScreenView, Error> {
        match self.unless_closed(job.screen(&wait)).await {
            Some(view) => Ok(view?),
            None => {
                let at_once = ScreenWait {
                    patience: Duration::ZERO,
                    ..wait
                };
                Ok(job.screen(&at_once).await?)
            }
        }
    }
}
