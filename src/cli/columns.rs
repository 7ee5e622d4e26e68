use std::io::{IsTerminal, stdout};

use rustix::termios::tcgetwinsize;
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Rows with their cells in columns, two spaces apart. On a terminal the last cell is cut where the line would end.
pub(super) fn in_columns<const N: usize>(rows: &[[String; N]]) -> Vec<String> {
    within(rows, terminal_width())
}

fn within<const N: usize>(rows: &[[String; N]], most: Option<usize>) -> Vec<String> {
    let width = |column: usize| rows.iter().map(|row| row[column].width()).max().unwrap_or(0);
    let widths: [usize; N] = std::array::from_fn(width);
    let line = |row: &[String; N]| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| padded(cell, width)).collect();
        let line = cells.join("  ");
        let line = line.trim_end();
        most.map_or_else(|| line.to_owned(), |most| cut(line, most))
    };
    rows.iter().map(line).collect()
}

/// Text that takes `width` columns of a terminal, or more if it is longer.
pub(super) fn padded(text: &str, width: usize) -> String {
    format!("{text}{}", " ".repeat(width.saturating_sub(text.width())))
}

/// Text that takes at most `most` columns; an ellipsis stands for what is left out.
pub(super) fn cut(text: &str, most: usize) -> String {
    if text.width() <= most {
        return text.to_owned();
    }
    let mut left = most.saturating_sub(1);
    let fits = |c: &char| {
        let width = c.width().unwrap_or(0);
        let is_room = width <= left;
        left = left.saturating_sub(width);
        is_room
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

fn terminal_width() -> Option<usize> {
    let size = tcgetwinsize(stdout()).ok().filter(|_| stdout().is_terminal())?;
    (size.ws_col > 0).then_some(size.ws_col.into())
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
        assert_eq!(within(&[["web1".to_owned(), "make test".to_owned()]], Some(10)), ["web1  mak…"]);
        assert_eq!(cut("東京都", 4), "東…");
        assert_eq!(cut("東京", 4), "東京");
    }
}
