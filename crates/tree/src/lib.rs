//! Working trees: which files of a directory belong to one, and what a sync of it to another directory changes.
//!
//! [`WorkingTree::read`] looks at a directory of this machine, [`Tree`] is what it finds, [`Manifest`] what earlier syncs
//! have written, and [`SyncPlan::new`] compares the three. Only `working_tree.rs` and `git.rs` touch files.

mod git;
mod manifest;
mod plan;
mod tree;
mod working_tree;

pub use manifest::{BadManifest, FileRecord, Manifest};
pub use plan::{Blocked, SyncPlan};
pub use tree::{BadEntry, EntryKind, FileFacts, Tree, is_below};
pub use working_tree::{BadExclusion, Exclusions, WorkingTree};

/// Directory in the root of a tree in which a sync keeps its manifest and unfinished files. It belongs to no tree.
pub const SYNC_DIRECTORY: &str = ".sshjobs-sync";
