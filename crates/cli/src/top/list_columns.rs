//! The columns of the list of jobs, and which of them fit.

use unicode_width::UnicodeWidthStr;

use crate::verbs::{age, command_of, duration_of, state_of};
use sshjobs_core::jobs::printable;
use sshjobs_wire::{JobEntry, Members, in_largest_unit};

/// A column of the list.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) text: fn(&JobEntry) -> String,
    /// Maximum width.
    most: usize,
    /// Columns with less weight shrink first on a narrow terminal.
    weight: u8,
}

pub(super) const JOB: &str = "JOB";
pub(super) const STATE: &str = "STATE";
pub(super) const LINES: &str = "LINES";
const COMMAND: &str = "COMMAND";
/// Width of the command before the other columns have theirs. Then it gets the rest of the row.
const COMMAND_AT_FIRST: u16 = 20;
/// Minimum width of a shortened column. Below that it is omitted.
const LEAST: usize = 4;
/// Space between two columns.
pub(super) const GAP: u16 = 2;

const COLUMNS: [Column; 7] = [
    Column {
        name: JOB,
        text: |entry| printable(&entry.job_id),
        most: 30,
        weight: 7,
    },
    Column {
        name: "HOST",
        text: |entry| printable(&entry.host),
        most: 20,
        weight: 4,
    },
    Column {
        name: STATE,
        text: state_or_members,
        most: 34,
        weight: 6,
    },
    Column {
        name: "AGE",
        text: |entry| age(entry.started_at),
        most: 4,
        weight: 0,
    },
    Column {
        name: "TIME",
        text: |entry| in_largest_unit(duration_of(entry)),
        most: 4,
        weight: 2,
    },
    Column {
        name: LINES,
        text: |entry| entry.total_lines.to_string(),
        most: 9,
        weight: 1,
    },
    Column {
        name: COMMAND,
        text: command_of,
        most: 200,
        weight: 5,
    },
];

fn width_of(column: &Column, jobs: &[JobEntry]) -> u16 {
    let widest = jobs.iter().map(|entry| (column.text)(entry).width()).max().unwrap_or(0);
    u16::try_from(widest.max(column.name.len()).min(column.most)).unwrap_or(u16::MAX)
}

/// The columns that fit, with their widths.
pub(super) fn columns_within(width: u16, jobs: &[JobEntry]) -> Vec<(&'static Column, u16)> {
    let mut by_weight: Vec<(usize, &Column)> = COLUMNS.iter().enumerate().collect();
    by_weight.sort_by_key(|(_, column)| std::cmp::Reverse(column.weight));
    let mut left = width;
    let mut chosen = Vec::new();
    for (index, column) in by_weight {
        let most = if column.name == COMMAND {
            COMMAND_AT_FIRST
        } else {
            left
        };
        // The last one may be shortened.
        let wanted = width_of(column, jobs).min(most).min(left);
        // One column is always shown, however narrow the terminal is.
        let is_useful = usize::from(wanted) >= column.name.len().min(LEAST) || chosen.is_empty();
        if is_useful {
            chosen.push((index, wanted));
            left = left.saturating_sub(wanted + GAP);
        }
    }
    // Back into the order of `COLUMNS`, in which the command is the last.
    chosen.sort_unstable();
    let used: u16 = chosen.iter().map(|(_, width)| width + GAP).sum();
    let spare = (width + GAP).saturating_sub(used);
    let last = chosen.last_mut().and_then(|(index, width)| Some((COLUMNS.get(*index)?, width)));
    if let Some((column, width)) = last
        && column.name == COMMAND
    {
        *width = width_of(column, jobs).min(*width + spare);
    }
    chosen
        .into_iter()
        .filter_map(|(index, width)| Some((COLUMNS.get(index)?, width)))
        .collect()
}

/// The state, or for a fleet how many of its hosts are in which.
fn state_or_members(entry: &JobEntry) -> String {
    let Some(members) = &entry.members else { return state_of(entry) };
    let Members {
        ok,
        failed,
        unreachable,
        running,
        not_started,
    } = *members;
    let left = if entry.standing.state.is_final() {
        "not started"
    } else {
        "to come"
    };
    let kinds = [
        (ok, "ok"),
        (failed, "failed"),
        (unreachable, "unreachable"),
        (running, "running"),
        (not_started, left),
    ];
    let told = kinds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{count} {kind}"));
    told.collect::<Vec<_>>().join(", ")
}
