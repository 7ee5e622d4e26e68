//! Options and results of a sync.

use std::path::PathBuf;

use sshjobs_tree::{Exclusions, SyncPlan};

use crate::files::FilesError;

/// How a tree is synced.
#[derive(Clone, Debug)]
pub struct SyncOptions {
    /// Patterns of files to leave out, beside those of ignore files.
    pub exclusions: Exclusions,
    /// Finds out what would be done, and does nothing.
    pub dry_run: bool,
}

/// Changes that a sync made, or with [`SyncOptions::dry_run`] would make. Paths are below both directories.
#[derive(Clone, Debug, Default)]
pub struct SyncReport {
    /// Files and links that were written.
    pub sent: Vec<PathBuf>,
    /// Entries that were deleted.
    pub deleted: Vec<PathBuf>,
    /// Files and links that were equal.
    pub unchanged: u64,
    /// Bytes of the files that were written.
    pub bytes: u64,
    /// Bytes of them that were sent. Fewer if only blocks of a file differ, or an earlier sync was cut.
    pub sent_bytes: u64,
    /// Files that are gone at the source and were changed at the target since they were written. They stay.
    pub kept: Vec<PathBuf>,
    /// Devices, sockets and pipes.
    pub skipped: Vec<PathBuf>,
    /// Entries that were not written, and why.
    pub failed: Vec<(PathBuf, FilesError)>,
    /// Whether a dry run would make directories or change permissions.
    pub(super) changes_modes: bool,
    /// The commit that is checked out at the source, if it is a working tree of git.
    pub commit: Option<String>,
    /// A hash of all paths and contents of the tree. Absent after a dry run that would change something, after a sync
    /// from a host, and if an entry failed.
    pub hash: Option<String>,
}

impl SyncReport {
    /// Adds the changes that a plan would make.
    pub(super) fn add_plan(&mut self, plan: &SyncPlan) {
        self.sent.extend(plan.send.iter().chain(&plan.compare).cloned());
        self.deleted.extend(plan.delete.iter().chain(&plan.delete_directories).cloned());
        self.changes_modes = !plan.make.is_empty() || !plan.set_mode.is_empty();
    }

    /// The same after an earlier round, whose failures this one has mended or met again.
    #[must_use]
    pub(crate) fn after(mut self, earlier: Self) -> Self {
        self.sent.extend(earlier.sent);
        self.deleted.extend(earlier.deleted);
        self.bytes += earlier.bytes;
        self.sent_bytes += earlier.sent_bytes;
        self.changes_modes |= earlier.changes_modes;
        self
    }

    /// Whether the target was changed, or would be.
    pub fn has_changes(&self) -> bool {
        !self.sent.is_empty() || !self.deleted.is_empty() || self.changes_modes
    }
}
