//! The stdin of durable jobs: each piece is written by a short command on the host, at a known
//! offset, so that a piece whose answer was lost is never written twice.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::Mutex;
use tokio::time::sleep;

use super::follow_host::ask;
use crate::hosts::HostRef;
use crate::runner::state::{JobStdin, RunnerState, chain};
use sshjobs_job::spool::{self, SpoolReply};
use sshjobs_job::{Controls, FarEndError, Job, Signal, Stdin};
use sshjobs_output::TerminalSize;

/// Longest pause between attempts to write.
const WRITE_PAUSE: Duration = Duration::from_millis(500);
/// Attempts to resize a terminal that does not exist yet.
const RESIZE_ATTEMPTS: usize = 6;
/// Maximum bytes written to a job's stdin by one command.
const PIECE: usize = 32 << 10;

/// The stdin of a durable job that another process started or follows.
pub(crate) fn stdin_on_host(shared: &Arc<RunnerState>, job: &Arc<Job>) -> Arc<JobStdin> {
    stdin(shared, job, None)
}

/// Stdin with a known offset; `None` if another process started the job and the host must be asked.
pub(super) fn stdin(
    shared: &Arc<RunnerState>,
    job: &Arc<Job>,
    known: Option<u64>,
) -> Arc<JobStdin> {
    let is_closed = !matches!(job.spec.stdin, Stdin::Open);
    let controls = Arc::new(DurableControls {
        shared: Arc::downgrade(shared),
        job: Arc::clone(job),
        writer: format!("{:016x}", rand::random::<u64>()),
        position: Mutex::new(StdinPosition {
            known,
            in_flight: Vec::new(),
        }),
    });
    Arc::new(JobStdin::unannounced(controls, Arc::clone(job), is_closed))
}

/// Writes to a durable job's stdin. A short command writes each piece and reports the new offset,
/// so a piece whose answer was lost is sent again without being written twice.
struct DurableControls {
    shared: std::sync::Weak<RunnerState>,
    job: Arc<Job>,
    /// Distinguishes our writes from those of other writers.
    writer: String,
    position: Mutex<StdinPosition>,
}

struct StdinPosition {
    /// Bytes written so far. `None` if the host must be asked.
    known: Option<u64>,
    /// The piece that was sent and not yet acknowledged.
    in_flight: Vec<u8>,
}

/// Answer of the host to a write.
enum WriteAnswer {
    /// The piece was written. This is the new offset.
    Written(u64),
    /// The piece was not written: another writer moved stdin to this offset.
    Moved(u64),
}

impl DurableControls {
    async fn write_piece(&self, data: &[u8]) -> Result<usize, FarEndError> {
        let mut position = self.position.lock().await;
        let sent = std::mem::take(&mut position.in_flight);
        let is_repeat = !sent.is_empty() && data.starts_with(&sent);
        // A caller that timed out and repeats its write must send the same piece.
        let length = if is_repeat {
            sent.len()
        } else {
            data.len().min(PIECE)
        };
        let piece = &data[..length];
        let mut at = match position.known {
            Some(at) if sent.is_empty() || is_repeat => at,
            _ => {
                // Before the question: if it is cancelled, the next write must ask again.
                position.known = None;
                self.ask_where().await?
            }
        };
        loop {
            // Before the request: if it is cancelled, the piece may be written all the same.
            (position.known, position.in_flight) = (Some(at), piece.to_vec());
            let answer = self
                .ask_until_done(
                    || spool::write(self.job.id.as_str(), at, length, &self.writer),
                    piece,
                )
                .await?;
            match answer {
                WriteAnswer::Moved(now) => at = now,
                WriteAnswer::Written(now) => {
                    (position.known, position.in_flight) = (Some(now), Vec::new());
                    return Ok(length);
                }
            }
        }
    }

    /// The current offset of stdin on the host.
    async fn ask_where(&self) -> Result<u64, FarEndError> {
        // Stdin never has this offset, so nothing is written, and the host answers its own.
        let (WriteAnswer::Written(at) | WriteAnswer::Moved(at)) = self
            .ask_until_done(
                || spool::write(self.job.id.as_str(), u64::MAX, 0, &self.writer),
                &[],
            )
            .await?;
        Ok(at)
    }

    /// Sets the size of the job's terminal. Waits a moment for a terminal that is being made.
    async fn resize_there(&self, size: TerminalSize) -> Result<(), FarEndError> {
        let command = spool::resize(self.job.id.as_str(), size.cols, size.rows);
        for _ in 0..RESIZE_ATTEMPTS {
            let shared = self.shared.upgrade().ok_or(FarEndError::ConnectionLost)?;
            match ask(&shared, &HostRef::of(&self.job), &command, &[]).await {
                Ok(SpoolReply::Done) => return Ok(()),
                Ok(SpoolReply::Closed) => return Err(FarEndError::StdinEnded),
                Ok(SpoolReply::Busy) => {}
                Ok(other) => {
                    tracing::debug!(job = %self.job.id, ?other, "the terminal was not resized");
                    return Err(FarEndError::Unsupported(
                        // Completes the message "the job …".
                        "has a terminal whose size can't be changed there",
                    ));
                }
                Err(error) => {
                    tracing::debug!(job = %self.job.id, error = chain(&error), "can't resize now");
                    return Err(FarEndError::ConnectionLost);
                }
            }
            drop(shared);
            sleep(WRITE_PAUSE).await;
        }
        Err(FarEndError::Unsupported(
            "was started by an earlier version, and keeps the size of its terminal",
        ))
    }

    /// Repeats the request until the host answers: while the host is unreachable, and while earlier
    /// input waits to be read.
    async fn ask_until_done(
        &self,
        command: impl Fn() -> String,
        input: &[u8],
    ) -> Result<WriteAnswer, FarEndError> {
        let mut pause = Duration::from_millis(20);
        loop {
            let shared = self.shared.upgrade().ok_or(FarEndError::ConnectionLost)?;
            match ask(&shared, &HostRef::of(&self.job), &command(), input).await {
                Ok(SpoolReply::At(at)) => return Ok(WriteAnswer::Written(at)),
                Ok(SpoolReply::Moved(at)) => return Ok(WriteAnswer::Moved(at)),
                Ok(SpoolReply::Closed) => return Err(FarEndError::StdinEnded),
                Ok(SpoolReply::Busy) => {}
                // The new owner of the host can be reached at its replica.
                Ok(SpoolReply::Fenced) => return Err(FarEndError::ConnectionLost),
                Ok(other) => tracing::debug!(job = %self.job.id, ?other, "stdin was not written"),
                Err(error) => {
                    tracing::debug!(job = %self.job.id, error = chain(&error), "stdin can't be written now");
                }
            }
            // Not held during the pause: a write that waits must not keep the runner alive.
            drop(shared);
            sleep(pause).await;
            pause = (pause * 2).min(WRITE_PAUSE);
        }
    }
}

impl Controls for DurableControls {
    fn write<'a>(&'a self, data: &'a [u8]) -> BoxFuture<'a, Result<usize, FarEndError>> {
        self.write_piece(data).boxed()
    }

    fn eof(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
        async {
            match self.ask_until_done(|| spool::eof(self.job.id.as_str()), &[]).await {
                Ok(_) | Err(FarEndError::StdinEnded) => Ok(()),
                Err(error) => Err(error),
            }
        }
        .boxed()
    }

    fn signal(&self, _signal: Signal) -> BoxFuture<'_, Result<(), FarEndError>> {
        // Only the signal script knows the job's processes.
        async { Ok(()) }.boxed()
    }

    fn resize(&self, size: TerminalSize) -> BoxFuture<'_, Result<(), FarEndError>> {
        self.resize_there(size).boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
        async { Ok(()) }.boxed()
    }

    fn outlives_us(&self) -> bool {
        true
    }
}
