//! Directories with all that is in them: through one tar stream where the target is new and the host
//! has tar, otherwise file by file, many at a time. [`sync`] sends changes only.

mod archive;
mod fetch;
mod get_tree;
mod local;
mod put_tree;
mod report;
mod sync;
mod verify;

pub use fetch::{FetchReport, FetchedFile, FilesToFetch};
pub use report::{TreeOptions, TreeReport};
pub use sync::{SyncOptions, SyncReport};
