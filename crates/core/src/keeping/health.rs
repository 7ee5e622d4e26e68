//! Whether the store can be written, for readiness and monitoring: also while nothing has to be stored.

use std::time::Duration;

use tokio::time::Instant;

use sshjobs_base::sync::atomic::{AtomicU64, Ordering::Relaxed};
use sshjobs_base::sync::{Mutex, lock};
use sshjobs_store::{Store, StoreError};

/// The store's errors, and the result of the last probe.
pub(super) struct StoreHealth {
    /// Writes that have failed.
    errors: AtomicU64,
    probed: Mutex<Probed>,
}

/// The last probe.
struct Probed {
    ended: Instant,
    /// Why it failed.
    trouble: Option<String>,
    /// Bytes that are free on the store's disk, if known.
    free_bytes: Option<u64>,
}

/// Interval between probes.
const PROBED_EVERY: Duration = Duration::from_secs(10);
/// Time without the end of a probe after which the store counts as hung.
const HUNG_AFTER: Duration = Duration::from_secs(30);

impl StoreHealth {
    pub(super) fn new() -> Self {
        Self {
            errors: AtomicU64::new(0),
            probed: Mutex::new(Probed {
                ended: Instant::now(),
                trouble: None,
                free_bytes: None,
            }),
        }
    }

    /// Bytes that are free on the store's disk, if known.
    pub(super) fn free_bytes(&self) -> Option<u64> {
        lock(&self.probed).free_bytes
    }

    /// Counts a write that failed.
    pub(super) fn count_error(&self) {
        self.errors.fetch_add(1, Relaxed);
    }

    /// Number of writes that have failed.
    pub(super) fn errors(&self) -> u64 {
        self.errors.load(Relaxed)
    }

    /// Why the store can't be written now, in words.
    pub(super) fn trouble(&self) -> Option<String> {
        let probed = lock(&self.probed);
        if probed.ended.elapsed() >= HUNG_AFTER {
            return Some(format!("the store has not answered for {HUNG_AFTER:?}"));
        }
        probed.trouble.clone()
    }

    pub(super) fn is_probe_due(&self) -> bool {
        let probed = lock(&self.probed);
        // Soon again after a failure, so that a mended store is used soon.
        probed.trouble.is_some() || probed.ended.elapsed() >= PROBED_EVERY
    }

    /// Writes to the store. Blocking, perhaps for ever if a disk hangs.
    pub(super) fn probe(&self, store: &dyn Store) {
        let result = store.probe();
        let trouble = result.as_ref().err().map(StoreError::to_string);
        let free_bytes = store.free_bytes();
        let mut probed = lock(&self.probed);
        if probed.trouble.is_some() != trouble.is_some() {
            match &trouble {
                Some(trouble) => tracing::error!("nothing can be stored: {trouble}"),
                None => tracing::info!("the store can be written again"),
            }
        }
        *probed = Probed {
            ended: Instant::now(),
            trouble,
            free_bytes,
        };
    }
}

/// Logs that records could not be written.
pub(super) fn warn(done: Result<(), StoreError>) {
    if let Err(error) = done {
        tracing::warn!(%error, "the records of jobs can't be written");
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use sshjobs_store::Memory;

    #[tokio::test(start_paused = true)]
    async fn a_store_that_does_not_answer_is_in_trouble() {
        let health = StoreHealth::new();
        assert_eq!((health.trouble(), health.is_probe_due()), (None, false));
        advance(PROBED_EVERY).await;
        assert!(health.is_probe_due());
        advance(HUNG_AFTER).await;
        assert!(health.trouble().is_some());

        health.probe(&Memory::default());

        assert_eq!((health.trouble(), health.is_probe_due()), (None, false));
    }
}
