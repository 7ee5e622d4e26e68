//! Commands that only look: programs and options that neither write, nor use a network, nor run another
//! program.
//!
//! A [`ReadOnlyCommand`] exists only if [`ReadOnlyCommand::new`] has found each of its words in the
//! [table](PROGRAMS). A word that the table does not have is refused, whatever it would do: options are
//! named whole, short ones one by one, and none is abbreviated. Words before the
//! caller's own switch off pagers, hooks and monitors, which the account could have set.

mod command;
mod options;
mod table;

pub use command::{LOOK_VARIABLES, NotReadOnly, ReadOnlyCommand};
pub(crate) use options::{Operands, Options};
pub use table::{LookProgram, PROGRAMS};
