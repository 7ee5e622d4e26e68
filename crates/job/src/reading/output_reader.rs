//! Reads a job's output from its ring, or from the store where the ring has evicted it.

use std::sync::Arc;

use crate::log::Log;
use crate::{Job, OutputSpan};
use sshjobs_base::blocking::run_blocking;
use sshjobs_output::Ring;

/// Reads parts of a job's output, usually one after the other: the part of the store that was read
/// last is kept.
pub(crate) struct OutputReader<'a> {
    job: &'a Job,
    window: Option<Ring>,
}

/// Where a span can be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whereabouts {
    /// In the window that was read from the store.
    Window,
    /// In the job's ring, at least a moment ago.
    InRing,
    /// Partly evicted, and the store has no more of it: the job's ring has the rest.
    OnlyRestInRing,
}

impl<'a> OutputReader<'a> {
    pub(crate) fn new(job: &'a Job) -> Self {
        Self { job, window: None }
    }

    /// Drops the part that was read from the store unless `is_useful`. [`read`](Self::read) would
    /// use it again if it has the start of a span, even if it ends too early.
    pub(crate) fn keep_only_if(&mut self, is_useful: impl FnOnce(&Ring) -> bool) {
        self.window = self.window.take().filter(|ring| is_useful(ring));
    }

    /// Calls `read` with a ring that has the span: the job's own or, if that has evicted it, a part
    /// of the store, which ends when `is_enough` says so.
    ///
    /// `read` may run under the lock of the log, so it must not lock the log again.
    pub(crate) async fn read<T>(
        &mut self,
        span: OutputSpan,
        is_enough: impl Fn(&Ring) -> bool + Send + Sync + 'static,
        read: impl FnOnce(&Ring) -> T,
    ) -> T {
        let is_enough = Arc::new(is_enough);
        let mut read = read;
        loop {
            let own = Arc::clone(&is_enough);
            let found = self.find(span, move |ring: &Ring| own(ring)).await;
            if found == Whereabouts::Window
                && let Some(window) = &self.window
            {
                return read(window);
            }
            let answer = self.job.read_log(|log| {
                // In the meantime the ring may have evicted the span, which is stored by now.
                let has_lost_it = found == Whereabouts::InRing && !span.is_held_by(log.ring());
                if has_lost_it {
                    // Returned uncalled, for the next attempt.
                    Err(read)
                } else {
                    Ok(read(log.ring()))
                }
            });
            match answer {
                Ok(answer) => return answer,
                Err(unused) => read = unused,
            }
        }
    }

    /// The part of the store that has the span. `None` if the job's ring has the span, or all that
    /// is left of it.
    pub(crate) async fn read_stored(
        &mut self,
        span: OutputSpan,
        is_enough: impl Fn(&Ring) -> bool + Send + 'static,
    ) -> Option<&Ring> {
        let found = self.find(span, is_enough).await;
        if found == Whereabouts::Window {
            self.window.as_ref()
        } else {
            None
        }
    }

    /// Finds a span: in the current window, else in the job's ring, else in a new window that is
    /// read from the store.
    async fn find(
        &mut self,
        span: OutputSpan,
        is_enough: impl Fn(&Ring) -> bool + Send + 'static,
    ) -> Whereabouts {
        // A window that has nothing after the span's start is not the end of the output.
        if let Some(window) = &self.window
            && span.is_held_by(window)
            && span.is_followed_in(window)
        {
            return Whereabouts::Window;
        }
        let wanted = self.job.read_log(|log: &Log| {
            let ring = log.ring();
            (!span.is_held_by(ring)).then(|| (ring.newest(), ring.total()))
        });
        let Some((newest, total)) = wanted else { return Whereabouts::InRing };
        // Without a store, the ring has all there is.
        let Some(archive) = self.job.archive().cloned() else {
            return Whereabouts::OnlyRestInRing;
        };

        let reading = run_blocking(move || {
            archive.window(span, &|ring: &Ring| {
                // The end when the read began: the job may print as fast as this reads. The total
                // counts too, because an unfinished line has bytes and no number.
                let has_all = ring.newest() >= newest && ring.total() >= total;
                has_all || (span.is_followed_in(ring) && is_enough(ring))
            })
        });
        // `None` also if the runtime shuts down.
        self.window = reading.await.flatten();
        let Some(window) = &self.window else { return Whereabouts::OnlyRestInRing };
        // After the read of the store, during which the ring may have evicted more. A window that
        // starts no earlier than the ring has nothing that the ring lacks.
        let first_in_ring = self.job.read_log(|log| log.ring().first_available());
        if window.first_available() < first_in_ring && span.is_followed_in(window) {
            Whereabouts::Window
        } else {
            Whereabouts::OnlyRestInRing
        }
    }
}
