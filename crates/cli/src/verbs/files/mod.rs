//! The verbs for files of hosts: `put`, `get`, `sync` and `edit`.

mod edit;
mod get;
mod many;
mod progress;
mod put;
mod result;
mod sync;

pub use edit::edit;
pub use get::get;
pub use put::put;
pub use sync::sync;
