//! The screen of a terminal, computed from the bytes that a program prints.
//!
//! [`TerminalScreen`] is fed with output and resizes in their order, and gives a [`ScreenView`]. The
//! `vt100` crate interprets the sequences. What it leaves out is added here: some sequences, the
//! title, and answers to a program's questions about its terminal.

mod answers;
mod terminal_screen;
mod translator;
mod view;

pub use terminal_screen::TerminalScreen;
pub use view::{Cursor, ScreenRow, ScreenSpan, ScreenView};
