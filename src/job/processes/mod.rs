//! The processes of a running job, as its host describes them.

mod parse;
mod process;
mod waiting;

pub use process::{LONGEST_COMMAND, Process, Processes, Termios, Transferred};
