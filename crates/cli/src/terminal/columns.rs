//! Tables of text, by the width of characters on a terminal.

use std::io::{IsTerminal, stdout};

use rustix::termios::tcgetwinsize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Width that the last cell of a row keeps, if it needs that much. Wider cells before it are cut.
const LAST_CELL: usize = 30;
/// Width below which no cell is cut to make room for the last one.
const LEAST_CELL: usize = 12;
/// What separates two columns.
const GAP: &str = "  ";

/// Rows with their cells in columns, two spaces apart. All rows have as many cells. On a terminal the line ends
/// where the terminal does: the widest cells are cut, and then the last one. The first cell is never cut, so that
/// an id can be copied.
pub(crate) fn in_columns<Row: AsRef<[String]>>(rows: &[Row]) -> Vec<String> {
    in_columns_within(terminal_width(), rows)
}

/// The rows, at most as wide as a terminal of this width.
fn in_columns_within<Row: AsRef<[String]>>(terminal: Option<usize>, rows: &[Row]) -> Vec<String> {
    let mut widths = widths_of(rows);
    if let Some(terminal) = terminal {
        make_room(&mut widths, terminal);
    }
    rows.iter().map(|row| in_one_line(row.as_ref(), &widths, terminal)).collect()
}

/// Whether the rows fit a terminal without cutting a cell, except for the last one, which keeps `last` columns if
/// it needs them.
pub(crate) fn fit_uncut<Row: AsRef<[String]>>(rows: &[Row], terminal: usize, last: usize) -> bool {
    let widths = widths_of(rows);
    let Some((widest, before)) = widths.split_last() else { return true };
    before.iter().map(|width| width + GAP.len()).sum::<usize>() + last.min(*widest) <= terminal
}

fn widths_of<Row: AsRef<[String]>>(rows: &[Row]) -> Vec<usize> {
    let mut widths = Vec::new();
    for row in rows {
        let cells = row.as_ref();
        widths.resize(cells.len().max(widths.len()), 0);
        for (widest, cell) in widths.iter_mut().zip(cells) {
            *widest = cell.width().max(*widest);
        }
    }
    widths
}

fn in_one_line(row: &[String], widths: &[usize], terminal: Option<usize>) -> String {
    let Some((last, before)) = row.split_last() else { return String::new() };
    let mut line = String::new();
    for (cell, width) in before.iter().zip(widths) {
        line += &padded(&cut(cell, *width), *width);
        line += GAP;
    }
    line += last;
    let line = line.trim_end();
    terminal.map_or_else(|| line.to_owned(), |width| cut(line, width))
}

/// Narrows the widest columns between the first and the last one until there is room for the last one.
fn make_room(widths: &mut [usize], terminal: usize) {
    let Some((last, before)) = widths.split_last_mut() else { return };
    let last = (*last).min(LAST_CELL);
    let gaps = GAP.len() * before.len();
    while before.iter().sum::<usize>() + gaps + last > terminal {
        let widest = before.iter_mut().skip(1).max_by_key(|width| **width);
        match widest {
            Some(width) if *width > LEAST_CELL => *width -= 1,
            Some(_) | None => return,
        }
    }
}

/// Text padded to `width` columns of a terminal. Longer text stays longer.
pub(crate) fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// Text cut to at most `most` columns, with an ellipsis for the rest.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_owned();
    }
    let mut left = most.saturating_sub(1);
    text.chars()
        .take_while(|c: &char| {
            let width = c.width().unwrap_or(0);
            let is_room = width <= left;
            left = left.saturating_sub(width);
            is_room
        })
        .chain(['…'])
        .collect()
}

/// Columns of the terminal to which stdout goes.
pub(crate) fn terminal_width() -> Option<usize> {
    if !stdout().is_terminal() {
        return None;
    }
    let size = tcgetwinsize(stdout()).ok()?;
    (size.ws_col > 0).then_some(size.ws_col.into())
}

/// Rows of the terminal to which stdout goes.
pub(crate) fn terminal_rows() -> Option<usize> {
    if !stdout().is_terminal() {
        return None;
    }
    let size = tcgetwinsize(stdout()).ok()?;
    (size.ws_row > 0).then_some(size.ws_row.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_also_in_east_asian_text() {
        let rows = [["東京", "a", "x"], ["web1", "bc", ""]].map(|row| row.map(str::to_owned));
        assert_eq!(in_columns_within(None, &rows), ["東京  a   x", "web1  bc"]);
    }

    #[test]
    fn a_narrow_terminal_cuts_the_last_cell() {
        assert_eq!(
            in_columns_within(Some(10), &[["web1".to_owned(), "make test".to_owned()]]),
            ["web1  mak…"]
        );
        let row = ["web1-1234", "queued (is next in the queue q)", "make test"].map(str::to_owned);
        assert_eq!(
            in_columns_within(Some(40), &[row]),
            ["web1-1234  queued (is next i…  make test"]
        );
        assert_eq!(cut("東京都", 4), "東…");
        assert_eq!(cut("東京", 4), "東京");
    }
}
