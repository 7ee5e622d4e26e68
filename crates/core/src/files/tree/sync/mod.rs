//! One-way copies of a working tree that send changes only, and delete only files of earlier copies.
//!
//! [`HostFiles::sync_to`](crate::files::HostFiles::sync_to), in order:
//!
//! 1. `host_copy.rs`: one script lists the directory on the host, with the manifest of earlier syncs.
//! 2. `sshjobs_tree` compares: most syncs change nothing and end here, without a lock.
//! 3. Other syncs of this machine are waited for (`exclusive.rs`), and the list is made again.
//! 4. The manifest gets everything that is going to be written, so that a cut sync leaves nothing that a later one could
//!    not delete.
//! 5. `staging.rs`: small files and links go as one tar stream into a directory of their own, are verified there and then
//!    renamed to their places. A cut sync leaves whole files there; the next one verifies them and does not send them again.
//! 6. Large files are sent one by one; of those that are there in another version, `blocks.rs` sends only the blocks that
//!    differ.
//! 7. The manifest gets the digests of the written files.
//!
//! `sync_from.rs` is the other direction, with the manifest here.

mod blocks;
mod exclusive;
mod host_copy;
mod report;
mod staging;
mod sync_from;
mod sync_to;

pub(super) use host_copy::{MANIFEST, MOST_MANIFEST};
pub use report::{SyncOptions, SyncReport};
