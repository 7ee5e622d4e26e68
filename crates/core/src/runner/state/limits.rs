//! The limits of the configuration, and limits derived from them.

use std::num::NonZeroU64;
use std::time::Duration;

use serde::{Deserialize, Deserializer};

use crate::hosts::PoolLimits;
use sshjobs_job::Pace;
use sshjobs_output::RingLimits;
use sshjobs_store::{LogLimits, StoreLimits};

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
    /// Time for which a finished job is stored. Whole days in the configuration.
    #[serde(rename = "keep_stored_days", deserialize_with = "days")]
    pub keep_stored: Duration,
    /// Bytes of output after which a durable job is ended on its host. `None`, or 0 in the
    /// configuration, for no limit.
    #[serde(deserialize_with = "zero_for_none")]
    pub spool_bytes_per_job: Option<NonZeroU64>,
    /// Maximum number of running jobs.
    pub max_jobs: usize,
    /// Maximum number of running jobs on one host.
    pub max_jobs_per_host: usize,
    /// Maximum number of finished jobs kept with their output.
    pub max_finished: usize,
    /// Time for which a finished job is kept.
    #[serde(rename = "keep_finished_s", deserialize_with = "seconds")]
    pub keep_finished: Duration,
    /// Longest wait of one call. Must be below the timeouts of MCP clients.
    #[serde(rename = "max_wait_ms", deserialize_with = "milliseconds")]
    pub max_wait: Duration,
    /// After the command has exited: the silence that ends the job while something, such as a
    /// background child, keeps the channel open.
    #[serde(rename = "drain_ms", deserialize_with = "milliseconds")]
    pub drain: Duration,
    /// Time from TERM to KILL when a job is ended by its time limit or with the program.
    #[serde(rename = "kill_grace_ms", deserialize_with = "milliseconds")]
    pub kill_grace: Duration,
    /// Whether this process adopts durable jobs that no process follows. Off in a program that is
    /// about to end.
    #[serde(skip)]
    pub adopts_jobs: bool,
    /// Time for which a connection without jobs is kept.
    #[serde(rename = "idle_connection_s", deserialize_with = "seconds")]
    pub idle_connection: Duration,
    /// Maximum jobs on one connection. OpenSSH's MaxSessions is 10; two channels are left for
    /// signals.
    pub jobs_per_connection: usize,
    /// Maximum connections to one host.
    pub connections_per_host: usize,
    /// Time for which a new job waits for a slot when all connections are full.
    #[serde(rename = "channel_wait_ms", deserialize_with = "milliseconds")]
    pub channel_wait: Duration,
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
            keep_stored: 14 * DAY,
            spool_bytes_per_job: NonZeroU64::new(4 << 30),
            max_jobs: 1000,
            max_jobs_per_host: 1000,
            max_finished: 1000,
            keep_finished: Duration::from_secs(3600),
            max_wait: Duration::from_secs(50),
            drain: Duration::from_secs(2),
            kill_grace: Duration::from_secs(3),
            adopts_jobs: true,
            idle_connection: Duration::from_secs(300),
            jobs_per_connection: 8,
            connections_per_host: 128,
            channel_wait: Duration::from_secs(15),
        }
    }
}

/// Least value of `max_wait`: with less, a call returns before its job has started.
const LEAST_WAIT: Duration = Duration::from_millis(100);

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
        if self.max_wait < LEAST_WAIT {
            return Some(format!(
                "max_wait_ms must be at least {}",
                LEAST_WAIT.as_millis()
            ));
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
            idle: self.idle_connection,
            queue: self.channel_wait,
        }
    }

    pub(crate) fn log(&self) -> LogLimits {
        LogLimits {
            bytes: self.stored_bytes_per_job,
            line_bytes: self.max_line_bytes,
            interval: MARK_INTERVAL,
        }
    }

    pub(crate) fn stored(&self) -> StoreLimits {
        StoreLimits {
            bytes: self.stored_bytes_total,
            age: u64::try_from(self.keep_stored.as_millis()).unwrap_or(u64::MAX),
        }
    }

    /// Bytes of output after which `buffered_bytes_total` is enforced again.
    pub(crate) fn unseen_growth(&self) -> usize {
        // Between two checks the limit may be exceeded by about this much.
        (self.buffered_bytes_total / 8).max(256 << 10)
    }
}

const DAY: Duration = Duration::from_secs(24 * 3600);

fn days<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let seconds = u64::deserialize(from)?.saturating_mul(DAY.as_secs());
    Ok(Duration::from_secs(seconds))
}

fn seconds<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_secs)
}

fn milliseconds<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    u64::deserialize(from).map(Duration::from_millis)
}

fn zero_for_none<'de, D: Deserializer<'de>>(from: D) -> Result<Option<NonZeroU64>, D::Error> {
    u64::deserialize(from).map(NonZeroU64::new)
}
