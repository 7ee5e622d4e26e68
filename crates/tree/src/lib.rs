//! Working trees: which files of a directory belong to one, and what a sync of it to another directory changes.
//!
//! [`WorkingTree::read`] looks at a directory of this machine, [`Tree`] is what it finds, [`Manifest`] what earlier syncs
//! have written, and [`SyncPlan::new`] compares the three. Only `working_tree.rs` and `git.rs` touch files.

mod git;
mod manifest;
mod plan;
mod tree;
mod working_tree;

pub use manifest::{BadManifest, FileRecord, Manifest, SYNC_DIRECTORY};
pub use plan::{Blocked, SyncPlan};
pub use tree::{BadEntry, EntryKind, FileFacts, Tree, is_below};
pub use working_tree::{BadExclusion, Exclusions, WorkingTree};
