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
pub(super) use progress::shown;
pub use put::put;
pub use sync::sync;
