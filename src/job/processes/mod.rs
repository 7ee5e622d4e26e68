//! The processes of a running job, as its host describes them.

mod parse;
mod process;
mod waiting;

pub use process::{Process, Processes, Termios, Transferred};
