//! Followers of a job's raw bytes, by position.

use crate::Job;
use crate::log::Log;
use sshjobs_output::Stream;

/// Positions of a reader of raw bytes, one for each stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Positions {
    /// Bytes read of stdout.
    pub stdout: u64,
    /// Bytes read of stderr.
    pub stderr: u64,
}

/// The next raw bytes of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobBytes {
    /// Bytes of stdout.
    pub stdout: Vec<u8>,
    /// Bytes of stderr.
    pub stderr: Vec<u8>,
    /// Bytes that were evicted before this reader read them.
    pub dropped_bytes: u64,
    /// Whether the job has ended and this chunk reaches the end of both streams.
    pub at_end: bool,
}

/// The next raw bytes of one stream of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamPiece {
    /// The bytes.
    pub bytes: Vec<u8>,
    /// The position after them.
    pub end: u64,
    /// Bytes that were evicted before this reader read them.
    pub dropped_bytes: u64,
    /// Whether the job has ended and this piece reaches the end of the stream.
    pub at_end: bool,
}

impl Job {
    /// Notes that the follower of a job that waits for one has used all bytes before these positions.
    pub fn note_followed(&self, positions: Positions) {
        if let Some(pacing) = &self.pacing {
            pacing.note_taken(positions.stdout + positions.stderr);
        }
    }

    /// Waits for raw bytes after `positions`, advances these, and returns the bytes: exact,
    /// including unfinished lines.
    ///
    /// Cancelling loses nothing.
    pub async fn follow(&self, positions: &mut Positions) -> JobBytes {
        let mut log = self.log.subscribe();
        let waited = log.wait_for(|log| {
            log.outcome().is_some()
                || log.ring().total_bytes(Stream::Stdout) > positions.stdout
                || log.ring().total_bytes(Stream::Stderr) > positions.stderr
        });
        // Dropped at once: the guard is a read lock, and the reads below lock the log again.
        drop(waited.await.expect("a job owns its log"));
        let stdout = self.raw_bytes(Stream::Stdout, positions.stdout).await;
        let stderr = self.raw_bytes(Stream::Stderr, positions.stderr).await;

        // No await from here: a caller that drops this future has moved neither position, and reads
        // the same bytes again.
        let dropped_bytes =
            stdout.dropped_after(positions.stdout) + stderr.dropped_after(positions.stderr);
        positions.stdout = stdout.end();
        positions.stderr = stderr.end();
        // Outcome and totals under one lock: output that came after the reads above is not lost.
        let at_end = self.read_log(|log| {
            log.outcome().is_some()
                && log.ring().total_bytes(Stream::Stdout) == positions.stdout
                && log.ring().total_bytes(Stream::Stderr) == positions.stderr
        });
        JobBytes {
            stdout: stdout.bytes,
            stderr: stderr.bytes,
            dropped_bytes,
            at_end,
        }
    }

    /// Waits for bytes of one stream after `position`, or the end of the job, and returns the
    /// available ones: exact, including unfinished lines. No far end waits for such a reader.
    /// Cancel safe.
    pub async fn stream_piece(&self, stream: Stream, position: u64) -> StreamPiece {
        let mut log = self.log.subscribe();
        drop(
            log.wait_for(|log: &Log| {
                log.outcome().is_some() || log.ring().total_bytes(stream) > position
            })
            .await
            .expect("a job owns its log"),
        );
        let read = self.raw_bytes(stream, position).await;
        let dropped_bytes = read.dropped_after(position);
        // A position after the end of the stream stays where it is.
        let end = read.end().max(position);
        let at_end =
            self.read_log(|log| log.outcome().is_some() && log.ring().total_bytes(stream) <= end);
        StreamPiece {
            bytes: read.bytes,
            end,
            dropped_bytes,
            at_end,
        }
    }
}
