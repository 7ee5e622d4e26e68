use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Progress of transfers, shared by all that belong together.
#[derive(Debug, Default)]
pub struct TransferProgress {
    bytes: AtomicU64,
    total: AtomicU64,
    files: AtomicU64,
}

impl TransferProgress {
    /// Bytes that were transferred, or did not need to be.
    pub fn bytes(&self) -> u64 {
        self.bytes.load(Relaxed)
    }

    /// Bytes to transfer, as far as they are known.
    pub fn total(&self) -> u64 {
        self.total.load(Relaxed)
    }

    /// Files that are complete.
    pub fn files(&self) -> u64 {
        self.files.load(Relaxed)
    }

    /// Counts transferred bytes.
    pub fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Relaxed);
    }

    /// Counts bytes to transfer.
    pub fn expect(&self, bytes: u64) {
        self.total.fetch_add(bytes, Relaxed);
    }

    /// Counts a complete file.
    pub fn complete(&self) {
        self.files.fetch_add(1, Relaxed);
    }
}
