//! The processes of a running job, as its host describes them.

mod awaited;
mod parse;
mod process;
mod waiting;

pub use awaited::{Awaited, AwaitedFile};
pub use process::{LONGEST_COMMAND, Process, Processes, Termios, Transferred};
