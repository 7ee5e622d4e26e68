//! Tables of text, by the width of characters on a terminal.

use std::io::{IsTerminal, stdout};

use rustix::termios::tcgetwinsize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Rows with their cells in columns, two spaces apart. On a terminal the last cell is cut where the
/// line would end.
pub(crate) fn in_columns<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    within(rows, terminal_width())
}

fn within<const N: usize>(rows: &[[String; N]], most: Option<usize>) -> Vec<String> {
    let widths: [usize; N] =
        std::array::from_fn(|column| rows.iter().map(|row| row[column].width()).max().unwrap_or(0));
    rows.iter()
        .map(|row: &[String; N]| {
            let cells: Vec<String> =
                row.iter().zip(widths).map(|(cell, width)| padded(cell, width)).collect();
            let line = cells.join("  ");
            let line = line.trim_end();
            most.map_or_else(|| line.to_owned(), |most| cut(line, most))
        })
        .collect()
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
        assert_eq!(cut("東京都", 4), "東…");
        assert_eq!(cut("東京", 4), "東京");
    }
}
