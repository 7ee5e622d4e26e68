//! The terminal, stdin and signals of this process.

mod colours;
mod columns;
pub(crate) mod keyboard;
mod pager;
mod screen;
mod signals;
pub(crate) mod stdin;
mod tty_prompter;

pub(crate) use colours::{DIM, GREEN, HOST_COLOURS, RED, YELLOW, colours_are_wanted, paint};
pub(crate) use columns::{fit_uncut, in_columns, padded, terminal_rows, terminal_width};
pub(crate) use keyboard::Keyboard;
pub(crate) use pager::{Pager, PagerEnds};
pub(crate) use screen::OwnScreen;
pub(crate) use signals::Signals;
pub use signals::{ServerSignals, survive_file_size_limit};
pub(crate) use stdin::{KeyboardRole, KeysEnded, has_unread_input};
pub use tty_prompter::TerminalPrompter;
pub(crate) use tty_prompter::{above_question, is_asking, note_bar};
