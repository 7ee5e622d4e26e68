//! The verbs for files of hosts: `put`, `get` and `edit`.

use std::ffi::OsStr;
use std::path::Path;

mod edit;
mod get;
mod many;
mod progress;
mod put;
mod result;

pub use edit::edit;
pub use get::get;
pub use put::put;

/// Whether a word is `-`: stdin or stdout.
fn is_stream(word: &Path) -> bool {
    word.as_os_str() == OsStr::new("-")
}
