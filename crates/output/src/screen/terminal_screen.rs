//! A terminal emulator without a display: it takes output and resizes, and returns its screen.

use std::num::NonZeroU16;

use vt100::{Cell, Color, Parser, Screen};

use super::answers::Answers;
use super::translator::Translator;
use super::view::{Cursor, ScreenRow, ScreenSpan, ScreenView};
use crate::styled::of_palette;
use crate::{Colour, StyledText, TerminalSize, TextStyle, is_harmless};

/// A terminal without scrollback. Memory: about 64 bytes per character, for the normal and the
/// alternate screen.
///
/// The rows do not depend on how the output is divided. Where a row [changed](ScreenRow::changed_at)
/// does: it is known to a call of [`feed`](Self::feed).
pub struct TerminalScreen {
    parser: Parser<Answers>,
    translator: Translator,
    /// Bytes of output so far, with those that were skipped.
    position: u64,
    /// Number of the last resize.
    resizes: u64,
    is_from_start: bool,
    /// The rows when they were last compared.
    rows: Vec<ScreenRow>,
}

impl TerminalScreen {
    /// The empty screen of a terminal before its first output.
    pub fn new(size: TerminalSize) -> Self {
        Self::skipping(size, 0, 0)
    }

    /// An empty screen that misses this much output and these resizes.
    pub fn skipping(size: TerminalSize, position: u64, resizes: u64) -> Self {
        let parser = Parser::new_with_callbacks(
            clamped(size.rows),
            clamped(size.cols),
            0,
            Answers::default(),
        );
        let mut screen = Self {
            parser,
            translator: Translator::default(),
            position,
            resizes,
            is_from_start: position == 0,
            rows: Vec::new(),
        };
        screen.compare_rows();
        screen
    }

    /// Processes the next output.
    pub fn feed(&mut self, output: &[u8]) {
        let (_, cols) = self.parser.screen().size();
        let translated = self.translator.translate(output, cols.get());
        self.parser.process(&translated);
        self.position += output.len() as u64;
        self.compare_rows();
    }

    /// Changes the size of the terminal, for the time of this number. The program redraws it
    /// afterwards.
    pub fn resize(&mut self, size: TerminalSize, number: u64) {
        self.parser.set_size(clamped(size.rows), clamped(size.cols));
        self.resizes = number;
        self.compare_rows();
    }

    /// Number of bytes and resizes so far.
    pub fn version(&self) -> u64 {
        self.position + self.resizes
    }

    /// Number of the last resize.
    pub fn resizes(&self) -> u64 {
        self.resizes
    }

    /// Size of the terminal.
    pub fn size(&self) -> TerminalSize {
        let (rows, cols) = self.parser.screen().size();
        TerminalSize {
            cols: cols.get().into(),
            rows: rows.get().into(),
        }
    }

    /// Answers to the questions that the program has asked since the last call, for its stdin.
    pub fn take_answers(&mut self) -> Vec<u8> {
        self.parser.callbacks_mut().take()
    }

    /// What the screen shows.
    pub fn view(&self) -> ScreenView {
        let screen = self.parser.screen();
        let (row, col) = screen.cursor_position();
        let size = self.size();
        ScreenView {
            size,
            rows: self.rows.clone(),
            cursor: Cursor {
                row: u32::from(row) + 1,
                // `vt100` puts the cursor one column past the end; terminals report the last column.
                col: (u32::from(col) + 1).min(size.cols),
                is_visible: !screen.hide_cursor(),
            },
            title: self.parser.callbacks().title.clone(),
            is_alternate: screen.alternate_screen(),
            version: self.version(),
            is_from_start: self.is_from_start,
        }
    }

    /// Number of bytes at the end of the output whose sequence or character is not complete.
    pub fn unfinished(&self) -> u64 {
        self.translator.unfinished()
    }

    /// Bytes that make another terminal of this size show the same screen, with the same modes of its
    /// keyboard. A scroll region, character sets and the screen under the alternate one are not
    /// restored.
    pub fn redraw(&self) -> Vec<u8> {
        let screen = self.parser.screen();
        let mut bytes = Vec::new();
        if screen.alternate_screen() {
            bytes.extend_from_slice(b"\x1b[?1049h");
        }
        bytes.extend_from_slice(screen.state_formatted().as_bytes());
        bytes
    }

    fn compare_rows(&mut self) {
        let version = self.version();
        let screen = self.parser.screen();
        let (rows, _) = screen.size();
        self.rows.resize_with(usize::from(rows.get()), ScreenRow::default);
        for (number, previous) in (0..).zip(&mut self.rows) {
            let row = read_row(screen, number);
            let is_same = (&row.text, &row.reversed, &row.highlighted)
                == (&previous.text, &previous.reversed, &previous.highlighted);
            let looks_same = is_same && row.styled == previous.styled;
            if !looks_same {
                *previous = ScreenRow {
                    changed_in: if is_same {
                        previous.changed_in
                    } else {
                        version
                    },
                    changed_at: if is_same {
                        previous.changed_at
                    } else {
                        self.position
                    },
                    restyled_in: version,
                    ..row
                };
            }
        }
    }
}

/// A number of rows or columns that `vt100` accepts: 1 to 65535.
fn clamped(count: u32) -> NonZeroU16 {
    let count = u16::try_from(count).unwrap_or(u16::MAX);
    NonZeroU16::new(count).unwrap_or(NonZeroU16::MIN)
}

/// A row as it is shown now, without invisible characters, as in [`clean`](crate::clean).
fn read_row(screen: &Screen, number: u16) -> ScreenRow {
    let cells = cells_of(screen, number);
    let mut text: String = cells.iter().flat_map(|(_, cell)| shown(cell)).collect();
    text.truncate(text.trim_end_matches(' ').len());
    ScreenRow {
        text,
        reversed: spans(&cells, &marked_columns(screen, number)),
        highlighted: spans(&cells, &coloured_columns(&cells)),
        styled: styled_pieces(&cells),
        ..ScreenRow::default()
    }
}

/// The cells of a row, each with its column.
fn cells_of(screen: &Screen, row: u16) -> Vec<(u16, &Cell)> {
    let (_, cols) = screen.size();
    (0..cols.get()).map_while(|col| Some((col, screen.cell(row, col)?))).collect()
}

/// The visible characters of a cell. None for the second half of a wide one.
fn shown(cell: &Cell) -> impl Iterator<Item = char> {
    let contents = match (cell.is_wide_continuation(), cell.has_contents()) {
        (true, _) => "",
        (false, true) => cell.contents(),
        (false, false) => " ",
    };
    contents.chars().filter(|&c| is_harmless(c))
}

/// The parts of a row at the marked columns, without blank ones: those are shadows or coloured rules.
fn spans(cells: &[(u16, &Cell)], marked: &[bool]) -> Vec<ScreenSpan> {
    let columns: Vec<(&(u16, &Cell), &bool)> = cells.iter().zip(marked).collect();
    let runs = columns.chunk_by(|(_, one), (_, next)| one == next);
    let marked_runs = runs.filter(|run| run.first().is_some_and(|(_, is_marked)| **is_marked));
    let spans = marked_runs.filter_map(|run| {
        let ((col, _), _) = run.first()?;
        Some(ScreenSpan {
            col: u32::from(*col) + 1,
            text: run.iter().flat_map(|((_, cell), _)| shown(cell)).collect(),
        })
    });
    spans.filter(|span| !span.text.trim().is_empty()).collect()
}

/// A row in pieces of one style, up to its last cell that is not blank.
fn styled_pieces(cells: &[(u16, &Cell)]) -> Vec<StyledText> {
    let is_blank =
        |cell: &Cell| cell.contents().trim().is_empty() && style_of(cell).is_invisible_on_space();
    let used = cells.iter().rposition(|(_, cell)| !is_blank(cell)).map_or(0, |last| last + 1);
    let runs = cells[..used].chunk_by(|(_, one), (_, next)| style_of(one) == style_of(next));
    let pieces = runs.map(|run| StyledText {
        text: run.iter().flat_map(|(_, cell)| shown(cell)).collect(),
        style: style_of(run[0].1),
    });
    pieces.collect()
}

fn style_of(cell: &Cell) -> TextStyle {
    TextStyle {
        foreground: colour(cell.fgcolor()),
        background: colour(cell.bgcolor()),
        bold: cell.bold(),
        dim: cell.dim(),
        italic: cell.italic(),
        underline: cell.underline(),
        reversed: cell.inverse(),
        strike: false,
    }
}

fn colour(colour: Color) -> Option<Colour> {
    match colour {
        Color::Default => None,
        Color::Idx(number) => Some(of_palette(number)),
        Color::Rgb(red, green, blue) => Some(Colour::Rgb(red, green, blue)),
    }
}

/// For each cell of a row, whether its colours differ from those of most of the row's text.
fn coloured_columns(cells: &[(u16, &Cell)]) -> Vec<bool> {
    let has_text = |cell: &Cell| cell.has_contents() && !cell.contents().trim().is_empty();
    let mut counts: Vec<(CellColours, usize)> = Vec::new();
    for (_, cell) in cells.iter().filter(|(_, cell)| has_text(cell)) {
        let colours = CellColours::of(cell);
        match counts.iter_mut().find(|(known, _)| *known == colours) {
            Some((_, count)) => *count += 1,
            None => counts.push((colours, 1)),
        }
    }
    // On a tie the first colours: a highlight usually follows plain text.
    let most = counts.iter().map(|(_, count)| *count).max();
    let usual = counts
        .iter()
        .find(|(_, count)| Some(*count) == most)
        .map(|(colours, _)| *colours);
    let differs = |cell: &Cell| usual.is_some_and(|usual| CellColours::of(cell) != usual);
    let mut marks: Vec<bool> =
        cells.iter().map(|(_, cell)| has_text(cell) && differs(cell)).collect();
    // A space between two marked words of one colour belongs to them.
    for column in 1..marks.len().saturating_sub(1) {
        let is_between = marks[column - 1]
            && !has_text(cells[column].1)
            && cells.get(column + 1).is_some_and(|(_, next)| has_text(next) && differs(next));
        marks[column] |= is_between && differs(cells[column].1);
    }
    marks
}

/// What makes a cell look different from another one.
#[derive(Clone, Copy, PartialEq, Eq)]
struct CellColours {
    text: Color,
    background: Color,
    is_bold: bool,
}

impl CellColours {
    fn of(cell: &Cell) -> Self {
        let (text, background) = if cell.inverse() {
            (cell.bgcolor(), cell.fgcolor())
        } else {
            (cell.fgcolor(), cell.bgcolor())
        };
        Self {
            text,
            background,
            is_bold: cell.bold(),
        }
    }
}

/// For each column of a row, whether its cell marks something: it is reversed, or in a run of cells on a background
/// that no cell above or below the run has, as the selected item of a menu is.
fn marked_columns(screen: &Screen, row: u16) -> Vec<bool> {
    let cells = cells_of(screen, row);
    let neighbours = [row.checked_sub(1), row.checked_add(1)];
    let is_around = |col: u16, colour: Color| {
        let cells = neighbours.into_iter().flatten().filter_map(|row| screen.cell(row, col));
        cells.map(background).any(|found| found == colour)
    };
    let runs = cells.chunk_by(|(_, one), (_, next)| background(one) == background(next));
    let marks = runs.flat_map(|run| {
        let stands_out = run.iter().all(|(col, cell)| {
            let colour = background(cell);
            colour != Color::Default && !is_around(*col, colour)
        });
        run.iter().map(move |(_, cell)| cell.inverse() || stands_out)
    });
    marks.collect()
}

/// The colour behind the text of a cell.
fn background(cell: &Cell) -> Color {
    if cell.inverse() {
        cell.fgcolor()
    } else {
        cell.bgcolor()
    }
}

#[cfg(test)]
mod tests;
