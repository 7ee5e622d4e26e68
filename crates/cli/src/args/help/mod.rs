//! How the command line is described to people: groups of verbs, wrapped texts, the version, and
//! hints for verbs that do not exist.

mod command_line;
mod paragraphs;
mod unknown_verb;
mod version;

pub(crate) use command_line::command_line;
pub(crate) use paragraphs::wrapped;
pub(super) use unknown_verb::unknown_verb;
pub(crate) use version::long_version;
