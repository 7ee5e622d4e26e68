//! The verbs for files of hosts: `put`, `get`, `sync`, `edit` and `fetch`.

mod edit;
mod fetch;
mod get;
mod many;
mod progress;
mod put;
mod result;
mod sync;

pub use edit::edit;
pub use fetch::fetch;
pub(crate) use fetch::fetch_here;
pub use get::get;
pub(super) use progress::shown;
pub use put::put;
pub use sync::sync;
