//! Tables of text, by the width of characters on a terminal.

use std::io::{IsTerminal, stdout};

use rustix::termios::tcgetwinsize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Columns that are left for the last cell of a row, if it needs them. Wider cells before it are cut.
const LAST: usize = 30;
/// Least width to which a cell is cut for the last one.
const LEAST: usize = 12;
/// Spaces between two columns.
const GAP: usize = 2;

/// Rows with their cells in columns, two spaces apart. On a terminal the line ends where the terminal does: the
/// widest cells are cut, and then the last one. The first cell is never cut, so that an id can be copied.
pub(crate) fn in_columns<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    within(rows, terminal_width())
}

fn within<const N: usize>(rows: &[[String; N]], most: Option<usize>) -> Vec<String> {
    let mut widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].width()).max().unwrap_or(0));
    if let Some(most) = most {
        make_room(&mut widths, most);
    }
    rows.iter()
        .map(|row: &[String; N]| {
            let cells: Vec<String> = row
                .iter()
                .zip(widths)
                .enumerate()
                .map(|(column, (cell, width))| {
                    let is_last = column + 1 == N;
                    padded(
                        &if is_last {
                            cell.clone()
                        } else {
                            cut(cell, width)
                        },
                        width,
                    )
                })
                .collect();
            let line = cells.join("  ");
            let line = line.trim_end();
            most.map_or_else(|| line.to_owned(), |most| cut(line, most))
        })
        .collect()
}

/// Narrows the widest columns between the first and the last one until there is room for the last one.
fn make_room(widths: &mut [usize], most: usize) {
    let Some((last, before)) = widths.split_last_mut() else { return };
    let last = (*last).min(LAST);
    let gaps = GAP * before.len();
    while before.iter().sum::<usize>() + gaps + last > most {
        let widest = before.iter_mut().skip(1).max_by_key(|width| **width);
        match widest {
            Some(width) if *width > LEAST => *width -= 1,
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
        assert_eq!(within(&rows, None), ["東京  a   x", "web1  bc"]);
    }

    #[test]
    fn a_narrow_terminal_cuts_the_last_cell() {
        assert_eq!(
            within(&[["web1".to_owned(), "make test".to_owned()]], Some(10)),
            ["web1  mak…"]
        );
        let row = ["web1-1234", "queued (is next in the queue q)", "make test"].map(str::to_owned);
        assert_eq!(
            within(&[row], Some(40)),
            ["web1-1234  queued (is next i…  make test"]
        );
        assert_eq!(cut("東京都", 4), "東…");
        assert_eq!(cut("東京", 4), "東京");
    }
}
