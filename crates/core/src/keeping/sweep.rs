//! Deleting old jobs, by a clock that is trusted.

use super::health::warn;
use super::retention_clock::{ClockReading, is_clock_trusted};
use super::storing::Storing;
use sshjobs_job::wall_now;
use sshjobs_store::{SharedText, StoreError, StoreLimits};

impl Storing {
    /// Deletes stored jobs that exceed a limit. None is old while the clock is in doubt.
    pub(super) fn sweep(&self) {
        let trusted = self
            .retention_clock()
            .and_then(|text| is_clock_trusted(text, &ClockReading::now()));
        let is_trusted = trusted.unwrap_or_else(|error| {
            tracing::warn!(%error, "old jobs are not deleted: the time of the last sweep is unknown");
            false
        });
        let bounds = if is_trusted {
            self.bounds
        } else {
            StoreLimits {
                age: u64::MAX,
                ..self.bounds
            }
        };
        warn(self.store.sweep(&bounds, wall_now()));
    }

    fn retention_clock(&self) -> Result<&dyn SharedText, StoreError> {
        if let Some(text) = self.retention_clock.get() {
            return Ok(&**text);
        }
        let opened = self.store.shared_text("retention_clock")?;
        Ok(&**self.retention_clock.get_or_init(|| opened))
    }
}
