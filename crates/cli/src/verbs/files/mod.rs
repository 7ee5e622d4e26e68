//! The verbs for files of hosts: `put`, `get` and `edit`.

mod edit;
mod get;
mod many;
mod progress;
mod put;
mod result;

pub use edit::edit;
pub use get::get;
pub use put::put;
