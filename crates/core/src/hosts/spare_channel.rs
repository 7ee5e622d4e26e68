//! Keeps one channel open in advance while jobs start and end.

use std::sync::Mutex;
use std::time::Duration;

use tokio::time::sleep;

use sshjobs_base::lock::lock;
use sshjobs_ssh::{Channel, ChannelError, Connection};

/// A channel opened in advance while jobs start and end, so that the next command costs one round
/// trip instead of two. It is kept for some seconds after the last job.
#[derive(Default)]
pub(super) struct Spare(Mutex<SpareState>);

#[derive(Default)]
struct SpareState {
    channel: Ahead,
    jobs: ConnectionJobs,
}

/// The jobs of a connection.
#[derive(Default)]
struct ConnectionJobs {
    /// Number of jobs that run now.
    running: usize,
    /// Number of jobs that have begun so far.
    begun: u64,
}

impl ConnectionJobs {
    fn begin(&mut self) {
        self.running += 1;
        self.begun += 1;
    }

    fn end(&mut self) {
        self.running -= 1;
    }
}

#[derive(Default)]
enum Ahead {
    #[default]
    None,
    Opening,
    Ready(Channel),
    /// The server has refused one, so none is requested again.
    Refused,
}

/// A channel on which nothing runs yet.
pub struct OpenedChannel {
    /// The channel.
    pub channel: Channel,
    /// Whether it was opened in advance. If so, the server may have closed it since.
    pub was_spare: bool,
}

/// Time for which a spare channel is kept after the last job.
const KEPT: Duration = Duration::from_secs(5);

impl Spare {
    /// The spare channel, if there is a usable one.
    pub(super) fn take(&self) -> Option<OpenedChannel> {
        let mut channel = {
            let state = &mut *lock(&self.0);
            match std::mem::take(&mut state.channel) {
                Ahead::Ready(channel) => channel,
                other @ (Ahead::None | Ahead::Opening | Ahead::Refused) => {
                    state.channel = other;
                    return None;
                }
            }
        };
        (!channel.is_closed()).then_some(OpenedChannel {
            channel,
            was_spare: true,
        })
    }

    /// Opens a channel for the next job, unless there is one. Must not be cancelled, or no later call
    /// would open one.
    pub(super) async fn refill(&self, connection: &Connection) {
        {
            let state = &mut *lock(&self.0);
            if !matches!(state.channel, Ahead::None) {
                return;
            }
            // Set before the await, so that jobs that start together open only one.
            state.channel = Ahead::Opening;
        }
        let opened = connection.open().await;
        lock(&self.0).channel = match opened {
            Ok(channel) => Ahead::Ready(channel),
            Err(ChannelError::OpenRefused) => Ahead::Refused,
            // The next caller that needs a channel gets the error.
            Err(_) => Ahead::None,
        };
    }

    pub(super) fn job_begins(&self) {
        lock(&self.0).jobs.begin();
    }

    /// Notes that a job has ended. After the last one, waits some seconds and closes the spare channel, unless a job
    /// begins meanwhile. If the future is dropped, the channel stays open.
    pub(super) async fn job_ends(&self) {
        let begun_before = {
            let jobs = &mut lock(&self.0).jobs;
            jobs.end();
            if jobs.running > 0 {
                return;
            }
            jobs.begun
        };
        sleep(KEPT).await;
        // If a job has begun since, the connection is in use, even if no job runs at this moment. Closing the spare channel
        // after each job would let memory grow; see `ssh::SERVER_CLOSES`.
        let is_idle = lock(&self.0).jobs.begun == begun_before;
        // A job that begins from here on only loses its spare channel.
        if is_idle && let Some(OpenedChannel { channel, .. }) = self.take() {
            // A lost connection needs no closing.
            channel.close().await.ok();
        }
    }
}
