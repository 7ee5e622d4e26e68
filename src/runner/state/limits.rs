//! The limits of the configuration, and limits derived from them.

use std::time::Duration;

use serde::Deserialize;

use crate::hosts::PoolLimits;
use crate::job::Pace;
use crate::output::RingLimits;
use crate::store::{Bounds, LogLimits};

/// Limits on jobs; the `[limits]` table of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Lines of output kept for each job.
    pub ring_buffer_lines: usize,
    /// Bytes of output kept for each job; at least four times `max_line_bytes`.
    pub ring_buffer_bytes: usize,
    /// Bytes of output kept for all jobs together. The output of finished jobs is evicted first.
    pub buffered_bytes_total: usize,
    /// Longest line in bytes. A longer one is split into numbered continuations.
    pub max_line_bytes: usize,
    /// Bytes of output stored for each job.
    pub stored_bytes_per_job: u64,
    /// Bytes of output stored for all jobs together. The output of the oldest finished jobs is
    /// deleted first.
    pub stored_bytes_total: u64,
    /// Days for which a finished job is stored.
    pub keep_stored_days: u64,
    /// Bytes of output after which a durable job is ended on its host; 0 for no limit.
    pub spool_bytes_per_job: u64,
    /// Maximum number of running jobs.
    pub max_jobs: usize,
    /// Maximum number of running jobs on one host.
    pub max_jobs_per_host: usize,
    /// Maximum number of finished jobs kept with their output.
    pub max_finished: usize,
    /// Seconds for which a finished job is kept.
    pub keep_finished_s: u64,
    /// Longest wait of one call in milliseconds. Must be below the timeouts of MCP clients.
    pub max_wait_ms: u64,
    /// After the command has exited: milliseconds of silence that end the job while something, such
    /// as a background child, keeps the channel open.
    pub drain_ms: u64,
    /// Milliseconds from TERM to KILL when a job is ended by its time limit or with the program.
    pub kill_grace_ms: u64,
    /// Whether this process adopts durable jobs that no process follows. Off in a program that is
    /// about to end.
    #[serde(skip)]
    pub adopts_jobs: bool,
    /// Seconds for which a connection without jobs is kept.
    pub idle_connection_s: u64,
    /// Maximum jobs on one connection. OpenSSH's MaxSessions is 10; two channels are left for
    /// signals.
    pub jobs_per_connection: usize,
    /// Maximum connections to one host.
    pub connections_per_host: usize,
    /// Milliseconds for which a new job waits for a slot when all connections are full.
    pub channel_wait_ms: u64,
}

/// Bytes kept for a job whose far end waits for its follower.
const HELD_BYTES: usize = 16 << 20;

/// Bytes kept for a member of a fleet. More than its host may send before it has to wait.
const MEMBER_BYTES: usize = 4 << 20;

/// Bytes of stored output between two positions at which a read can start.
const MARK_INTERVAL: u64 = 64 << 10;
/// Minimum for `stored_bytes_per_job`: output is stored in segments of at least one mebibyte.
const LEAST_STORED: u64 = 4 << 20;

impl Default for Limits {
    fn default() -> Self {
        let ring = RingLimits::default();
        Self {
            ring_buffer_lines: ring.lines,
            ring_buffer_bytes: ring.bytes,
            buffered_bytes_total: 1 << 30,
            max_line_bytes: ring.line_bytes,
            stored_bytes_per_job: 1 << 30,
            stored_bytes_total: 10 << 30,
            keep_stored_days: 14,
            spool_bytes_per_job: 4 << 30,
            max_jobs: 1000,
            max_jobs_per_host: 1000,
            max_finished: 1000,
            keep_finished_s: 3600,
            max_wait_ms: 50_000,
            drain_ms: 2000,
            kill_grace_ms: 3000,
            adopts_jobs: true,
            idle_connection_s: 300,
            jobs_per_connection: 8,
            connections_per_host: 128,
            channel_wait_ms: 15_000,
        }
    }
}

impl Limits {
    /// The first invalid setting, by name, with the reason.
    pub fn validate(&self) -> Option<String> {
        let positive = [
            ("ring_buffer_lines", self.ring_buffer_lines),
            ("max_jobs", self.max_jobs),
            ("max_jobs_per_host", self.max_jobs_per_host),
            ("jobs_per_connection", self.jobs_per_connection),
            ("connections_per_host", self.connections_per_host),
        ];
        if let Some((name, _)) = positive.into_iter().find(|(_, value)| *value == 0) {
            return Some(format!("{name} must be at least 1"));
        }
        if self.stored_bytes_per_job < LEAST_STORED {
            return Some(format!(
                "stored_bytes_per_job must be at least {LEAST_STORED}"
            ));
        }
        if self.max_line_bytes < 64 {
            return Some("max_line_bytes must be at least 64".to_owned());
        }
        // Divided, because a multiple of a configured limit could overflow.
        if self.ring_buffer_bytes / 4 < self.max_line_bytes {
            return Some("ring_buffer_bytes must be at least four times max_line_bytes".to_owned());
        }
        None
    }

    pub(crate) fn ring(&self, pace: Pace) -> RingLimits {
        let (lines, bytes) = match pace {
            Pace::Free => (self.ring_buffer_lines, self.ring_buffer_bytes),
            // Room for everything in flight, whatever the length of its lines.
            Pace::OfFollower => (usize::MAX, self.ring_buffer_bytes.max(HELD_BYTES)),
        };
        RingLimits {
            lines,
            bytes,
            line_bytes: self.max_line_bytes,
        }
    }

    /// The ring of a member. It holds the lines on their way into the fleet's log.
    pub(crate) fn of_member(ring: RingLimits) -> RingLimits {
        RingLimits {
            bytes: ring.bytes.min(MEMBER_BYTES),
            ..ring
        }
    }

    /// Limits on the connections of one host.
    pub fn pool(&self) -> PoolLimits {
        PoolLimits {
            channels_per_connection: self.jobs_per_connection,
            connections_per_host: self.connections_per_host,
            idle: Duration::from_secs(self.idle_connection_s),
            queue: Duration::from_millis(self.channel_wait_ms),
        }
    }

    pub(crate) fn log(&self) -> LogLimits {
        LogLimits {
            bytes: self.stored_bytes_per_job,
            line_bytes: self.max_line_bytes,
            interval: MARK_INTERVAL,
        }
    }

    pub(crate) fn stored(&self) -> Bounds {
        let age = self.keep_stored_days.saturating_mul(24 * 3600 * 1000);
        Bounds {
            bytes: self.stored_bytes_total,
            age,
        }
    }

    /// Bytes of output after which `buffered_bytes_total` is enforced again.
    pub(crate) fn unseen_growth(&self) -> usize {
        // Between two checks the limit may be exceeded by about this much.
        (self.buffered_bytes_total / 8).max(256 << 10)
    }

    pub(crate) fn drain(&self) -> Duration {
        Duration::from_millis(self.drain_ms)
    }

    pub(crate) fn kill_grace(&self) -> Duration {
        Duration::from_millis(self.kill_grace_ms)
    }
}
