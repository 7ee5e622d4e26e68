//! The screen of a terminal job, as `read` and `write` return it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::jobs::{Job, ScreenView, ScreenWait};
use crate::wire::Service;
use crate::wire::error::Error;
use crate::wire::leave_out::is_false;

/// What a job's terminal shows.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Screen {
    /// The rows from the top, without trailing blanks and blank rows at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<String>")]
    pub rows: Option<Vec<String>>,
    /// Only the rows that may have changed since since_version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Vec<ChangedRow>")]
    pub changed_rows: Option<Vec<ChangedRow>>,
    /// Parts that are shown reversed, such as a selected item.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub reversed: Vec<Reversed>,
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
    /// For since_version of a later call. Equal versions show the same.
    pub version: u64,
    /// False if the start of the output is gone, so that something may be missing here.
    #[serde(default = "yes", skip_serializing_if = "is_true")]
    pub from_start: bool,
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

/// A part of a row that is shown reversed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct Reversed {
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

impl Screen {
    /// A screen: all rows, or those that changed since a version.
    pub(crate) fn of(view: ScreenView, since_version: Option<u64>) -> Self {
        let reversed = (1..).zip(&view.rows).flat_map(|(row, shown)| {
            shown.reversed.iter().map(move |span| Reversed {
                row,
                col: span.col,
                text: span.text.clone(),
            })
        });
        let reversed = reversed.collect();
        let shown = (1..).zip(view.rows);
        let (rows, changed_rows) = match since_version {
            None => {
                let mut rows: Vec<String> = shown.map(|(_, row)| row.text).collect();
                let used = rows.iter().rposition(|row| !row.is_empty()).map_or(0, |last| last + 1);
                rows.truncate(used);
                (Some(rows), None)
            }
            Some(version) => {
                let changed = shown.filter(|(_, row)| row.changed_in > version);
                let rows = changed.map(|(row, shown)| ChangedRow {
                    row,
                    text: shown.text,
                });
                (None, Some(rows.collect()))
            }
        };
        Self {
            rows,
            changed_rows,
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
    pub(crate) async fn screen_of(&self, job: &Job, wait: ScreenWait) -> Result<ScreenView, Error> {
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
