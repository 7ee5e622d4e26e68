//! What `--version` prints.

use super::args::long_version;
use super::exit::{ProgramExit, print};

/// Prints the version if that is the only argument: `-V` the number alone, `--version` also commit
/// and features. This avoids building the description of the command line, which takes some
/// milliseconds.
pub fn answer_version() -> Option<ProgramExit> {
    let mut words = std::env::args_os().skip(1);
    let word = words.next()?;
    if words.next().is_some() {
        return None;
    }
    if word == "-V" {
        return Some(print(concat!("sshjobs ", env!("CARGO_PKG_VERSION"))));
    }
    (word == "--version").then(|| print(&format!("sshjobs {}", long_version())))
}
