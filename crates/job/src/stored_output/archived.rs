//! The stored output of a job, as its readers use it.

use std::io;
use std::sync::Arc;

use tokio::time::Instant;

use crate::archive::{Archive, Coverage, RecordingPlace, StoredPieces};
use crate::job::Job;
use crate::log::{Log, LogEvent};
use sshjobs_base::blocking::run_blocking;
use sshjobs_output::{Measure, Selection, Stream, Timestamp};

impl Job {
    /// The stored range of its output.
    pub fn coverage(&self) -> Option<Coverage> {
        self.storage.get().map(|storage| storage.archive.coverage())
    }

    /// Whether the store has all output that is in memory.
    pub fn has_ring_in_store(&self) -> bool {
        let Some(stored) = self.coverage() else { return false };
        let (before_first, newest) =
            self.read_log(|log| (log.ring().before_first(), log.ring().newest()));
        stored.begin.newest <= before_first
            && stored.last >= newest
            && stored.forgotten == 0
            && stored.gaps.iter().all(|(_, last_missing)| *last_missing <= before_first)
    }

    pub(crate) fn archive(&self) -> Option<&Arc<dyn Archive>> {
        self.storage.get().map(|storage| &storage.archive)
    }

    /// Stored output as it arrived, from a place on; the start without one. `None` if the job is not
    /// stored.
    ///
    /// # Errors
    /// If the store can't be read.
    pub async fn recording(
        &self,
        from: Option<RecordingPlace>,
    ) -> io::Result<Option<StoredPieces>> {
        let Some(archive) = self.archive().cloned() else { return Ok(None) };
        let reading = tokio::task::spawn_blocking(move || archive.recording(from));
        let read = reading.await.map_err(io::Error::other)?;
        read.map(Some)
    }

    /// Applies an event that another process has stored.
    pub fn mirror(&self, event: &LogEvent, at: Timestamp) {
        self.write_log(|log| log.take(event, at, Instant::now()));
    }

    /// Evicts the oldest output until at most `bytes` are kept.
    pub fn trim(&self, bytes: usize) {
        self.write_log(|log| log.ring_mut().trim(bytes));
    }

    /// Deletes the finished lines of the selected streams. Returns the number of lines and bytes
    /// deleted.
    pub async fn forget_output(&self, selection: Selection) -> (u64, u64) {
        let coverage = self.coverage().unwrap_or_default();
        let kept = |log: &Log, measure| {
            Stream::ALL
                .into_iter()
                .filter(|&stream| selection.contains(stream))
                .map(|stream| {
                    let end =
                        log.ring().extent(log.ring().newest(), Selection::Only(stream), measure);
                    end.saturating_sub(coverage.available_from(log.ring(), stream, measure))
                })
                .sum::<u64>()
        };
        // Counted under the lock that deletes, so that a line that ends meanwhile is not counted.
        let (gone, newest) = self.write_log(|log| {
            let gone = (kept(log, Measure::Lines), kept(log, Measure::Bytes));
            log.ring_mut().forget(selection);
            (gone, log.ring().newest())
        });
        // Up to `newest`, because later lines arrived after the ring was cleared.
        if let Some(archive) = self.archive().cloned() {
            run_blocking(move || archive.forget(selection, newest)).await;
        }
        gone
    }

    /// Deletes the lines that another process has deleted from the store. Blocking.
    ///
    /// # Errors
    /// If the store can't be read.
    pub fn forget_deleted(&self) -> io::Result<()> {
        let Some(archive) = self.archive() else { return Ok(()) };
        let deleted = archive.read_deleted()?;
        self.write_log(|log| {
            for stream in Stream::ALL {
                log.ring_mut().forget_until(stream, deleted.position(stream).last_line);
            }
        });
        Ok(())
    }
}
