//! A job's bytes as they come, for terminals and pipes.

use crate::jobs::{Job, Outcome, ReadableJob, Stream, StreamPiece};
use sshjobs_job::{JobBytes, Positions};

/// Follows a job's output byte by byte, including unfinished lines; for terminals and pipes.
pub struct Follow {
    job: ReadableJob,
    positions: Positions,
    role: FollowerRole,
}

/// The part of a follower for its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FollowerRole {
    /// The job waits for it, if it waits for a follower at all.
    Pacing,
    /// It reads beside others.
    Watching,
}

/// The next bytes of a job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FollowedBytes {
    /// Of standard output.
    pub stdout: Vec<u8>,
    /// Of standard error.
    pub stderr: Vec<u8>,
    /// Bytes that were evicted before this reader read them.
    pub dropped_bytes: u64,
    /// The job's outcome, with its last bytes.
    pub outcome: Option<Outcome>,
}

impl ReadableJob {
    /// The job's bytes from the first one on, including unfinished lines; for terminals and pipes.
    pub fn follow(&self) -> Follow {
        self.follow_after(0)
    }

    /// The job's bytes after some bytes of stdout.
    pub(super) fn follow_after(&self, stdout: u64) -> Follow {
        Follow {
            job: self.clone(),
            positions: Positions { stdout, stderr: 0 },
            role: FollowerRole::Watching,
        }
    }

    /// The same for the one follower that the job waits for.
    pub(crate) fn follow_pacing(&self) -> Follow {
        let mut follow = self.follow();
        follow.role = FollowerRole::Pacing;
        follow
    }
}

impl ReadableJob {
    /// Waits for bytes of one stream after `position`, or the end of the job, and returns the
    /// available ones. Cancel safe.
    pub async fn stream_piece(&self, stream: Stream, position: u64) -> StreamPiece {
        self.output().stream_piece(stream, position).await
    }
}

impl Follow {
    /// The job.
    pub fn job(&self) -> &Job {
        &self.job
    }

    /// Waits for the next bytes. Cancel safe: nothing is lost.
    pub async fn next(&mut self) -> FollowedBytes {
        // A copy, stored after the await, so that a cancelled call has consumed nothing.
        let mut positions = self.positions;
        if self.role == FollowerRole::Pacing {
            // Only this call shows that the follower has used the bytes of the last one.
            self.job.output().note_followed(positions);
        }
        let JobBytes {
            stdout,
            stderr,
            dropped_bytes,
            at_end,
        } = self.job.output().follow(&mut positions).await;
        self.positions = positions;
        let outcome = if at_end {
            self.job.output().read_log(|log| log.outcome().cloned())
        } else {
            None
        };
        FollowedBytes {
            stdout,
            stderr,
            dropped_bytes,
            outcome,
        }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        if self.role == FollowerRole::Pacing {
            // Otherwise the job would wait for ever.
            self.job.output().stop_pacing();
        }
    }
}
