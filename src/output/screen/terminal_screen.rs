//! A terminal that nobody looks at: output goes in, and its screen can be read at any time.

use std::num::NonZeroU16;

use vt100::{Parser, Screen};

use super::answers::Answers;
use super::translator::Translator;
use super::view::{Cursor, ScreenRow, ScreenView, Span};
use crate::output::{TerminalSize, is_harmless};

/// A terminal without scrollback. Memory is bounded by its size: about 64 bytes a character cell.
///
/// Any division of the same output gives the same rows, but the version in which a row
/// [changed](ScreenRow::changed_in) is exact only to a piece of output, at most 4 KiB.
pub struct TerminalScreen {
    parser: Parser<Answers>,
    translator: Translator,
    version: u64,
    is_from_start: bool,
    /// The rows when they were last compared.
    rows: Vec<ScreenRow>,
}

/// Bytes of output after which rows are compared.
const PIECE: usize = 4 << 10;

impl TerminalScreen {
    /// An empty screen. Unless `version` is 0, it misses the output and the resizes before that.
    pub fn new(size: TerminalSize, version: u64) -> Self {
        let parser = Parser::new_with_callbacks(
            characters(size.rows),
            characters(size.cols),
            0,
            Answers::default(),
        );
        let mut screen = Self {
            parser,
            translator: Translator::default(),
            version,
            is_from_start: version == 0,
            rows: Vec::new(),
        };
        screen.compare_rows();
        screen
    }

    /// Processes the next output.
    pub fn feed(&mut self, output: &[u8]) {
        for piece in output.chunks(PIECE) {
            let translated = self.translator.translate(piece);
            self.parser.process(&translated);
            self.version += piece.len() as u64;
            self.compare_rows();
        }
    }

    /// Changes the size of the terminal. The program redraws it afterwards.
    pub fn resize(&mut self, size: TerminalSize) {
        self.parser.set_size(characters(size.rows), characters(size.cols));
        self.version += 1;
        self.compare_rows();
    }

    /// Number of bytes and resizes so far.
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Its size.
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
                // After a character in the last column the cursor is behind it.
                col: (u32::from(col) + 1).min(size.cols),
                is_visible: !screen.hide_cursor(),
            },
            title: self.parser.callbacks().title.clone(),
            is_alternate: screen.alternate_screen(),
            version: self.version,
            is_from_start: self.is_from_start,
        }
    }

    /// Bytes that make another terminal of this size show the same screen, with the same modes.
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
        let screen = self.parser.screen();
        let (rows, _) = screen.size();
        self.rows.resize_with(usize::from(rows.get()), ScreenRow::default);
        for (number, known) in (0..).zip(&mut self.rows) {
            let row = row(screen, number);
            if row.text != known.text || row.reversed != known.reversed {
                *known = ScreenRow {
                    changed_in: self.version,
                    ..row
                };
            }
        }
    }
}

fn characters(count: u32) -> NonZeroU16 {
    let count = u16::try_from(count).unwrap_or(u16::MAX);
    NonZeroU16::new(count).unwrap_or(NonZeroU16::MIN)
}

/// A row as it is shown now, without invisible characters, as in [`clean`](crate::output::clean).
fn row(screen: &Screen, number: u16) -> ScreenRow {
    let (_, cols) = screen.size();
    let mut text = String::new();
    let mut reversed: Vec<Span> = Vec::new();
    let mut continues_span = false;
    for col in 0..cols.get() {
        let Some(cell) = screen.cell(number, col) else { break };
        if cell.is_wide_continuation() {
            continue;
        }
        let contents = if cell.has_contents() {
            cell.contents()
        } else {
            " "
        };
        let shown = contents.chars().filter(|&c| is_harmless(c));
        text.extend(shown.clone());
        if cell.inverse() {
            match reversed.last_mut() {
                Some(span) if continues_span => span.text.extend(shown),
                _ => reversed.push(Span {
                    col: u32::from(col) + 1,
                    text: shown.collect(),
                }),
            }
        }
        continues_span = cell.inverse();
    }
    text.truncate(text.trim_end_matches(' ').len());
    ScreenRow {
        text,
        reversed,
        changed_in: 0,
    }
}

#[cfg(test)]
mod tests;
