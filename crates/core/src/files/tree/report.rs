//! What a transfer of a directory did.

use crate::files::FilesError;

/// How a directory is transferred.
#[derive(Clone, Copy, Debug, Default)]
pub struct TreeOptions {
    /// Keeps permissions and times.
    pub preserve: bool,
    /// Transfers file by file, also where the host has tar.
    pub without_tar: bool,
}

/// What a transfer of a directory did.
#[derive(Clone, Debug, Default)]
pub struct TreeReport {
    /// Files that were written.
    pub written: u64,
    /// Files that had the same content already.
    pub unchanged: u64,
    /// Bytes of all files.
    pub bytes: u64,
    /// Files whose digests were compared at the end.
    pub verified: u64,
    /// Entries that are neither files nor directories nor links, by path.
    pub skipped: Vec<String>,
    /// Entries that failed, by path.
    pub failed: Vec<(String, FilesError)>,
}
