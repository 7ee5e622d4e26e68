//! Sessions with the simulated host: what its follower script sends, and the ways in which it can
//! go wrong.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use super::dice::Dice;
use super::host::{HostConnection, JobOnHost, Network, SimulatedHost};
use crate::hosts::{HostRef, Lease, Pool};
use crate::runner::state::{FollowerSession, SessionStart, Sessions, SpawnError};
use sshjobs_job::spool::FollowFrom;

/// Interval at which a session without news sends a sign of life.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// The host's answer if the spool's scripts are missing.
const MISSING: &[u8] = b"sshjobs-spool missing\n";

/// Sessions with a simulated host, over pooled connections.
pub(super) struct SimulatedSessions {
    pub(super) host: Arc<SimulatedHost>,
    pub(super) pool: Arc<Pool<Network>>,
    pub(super) dice: Dice,
}

impl Sessions for SimulatedSessions {
    fn start<'a>(
        &'a self,
        host: &'a HostRef,
        start: &'a (dyn Fn() -> SessionStart + Send + Sync),
    ) -> BoxFuture<'a, Result<Option<Box<dyn FollowerSession>>, SpawnError>> {
        async move {
            let lease = self.pool.lease(host).await.map_err(|_| failed(host, "no connection"))?;
            let dice = self.dice.fork();
            if dice.once_in(30) {
                // The connection does not answer.
                return Ok(None);
            }
            sleep(dice.millis(50)).await;
            let start = start();
            if dice.once_in(30) {
                lease.note_refusal();
                return Err(failed(host, "no channel"));
            }
            Ok(Some(Box::new(SimulatedSession::new(
                Arc::clone(&self.host),
                dice,
                lease,
                start,
            )) as Box<dyn FollowerSession>))
        }
        .boxed()
    }

    fn install<'a>(&'a self, host: &'a HostRef) -> BoxFuture<'a, Result<(), SpawnError>> {
        async move {
            let lease = self.pool.lease(host).await.map_err(|_| failed(host, "no connection"))?;
            sleep(self.dice.millis(50)).await;
            if lease.connection().lost.is_cancelled() || self.dice.once_in(10) {
                return Err(failed(host, "not installed"));
            }
            self.host.install_scripts();
            Ok(())
        }
        .boxed()
    }

    fn pause_factor(&self) -> f64 {
        self.dice.factor()
    }
}

fn failed(host: &HostRef, why: &str) -> SpawnError {
    SpawnError::Spool {
        host: host.name.clone(),
        why: why.to_owned(),
    }
}

struct SimulatedSession {
    host: Arc<SimulatedHost>,
    dice: Dice,
    lease: Lease<Arc<HostConnection>>,
    name: String,
    /// The jobs to send.
    jobs: BTreeMap<String, SessionProgress>,
    /// Written by the script, not received yet.
    on_the_way: BytesMut,
    has_caught_up: bool,
    is_closed: bool,
    changes: watch::Receiver<()>,
    /// Time of the next sign of life.
    beat_at: Instant,
}

/// Progress of a session with one job.
#[derive(Default)]
struct SessionProgress {
    /// Bytes of stdout and of stderr.
    bytes: [u64; 2],
    has_group: bool,
    has_end: bool,
}

impl SimulatedSession {
    fn new(
        host: Arc<SimulatedHost>,
        dice: Dice,
        lease: Lease<Arc<HostConnection>>,
        start: SessionStart,
    ) -> Self {
        let SessionStart { name, from } = start;
        let sent = |from: FollowFrom| {
            let sent = SessionProgress {
                bytes: [from.stdout, from.stderr],
                ..SessionProgress::default()
            };
            (from.job, sent)
        };
        let mut on_the_way = BytesMut::new();
        if dice.once_in(10) {
            on_the_way.extend_from_slice(b"Welcome!\nD is for Debian\n");
        }
        let is_closed = !host.has_scripts();
        if is_closed {
            on_the_way.extend_from_slice(MISSING);
        } else {
            host.begin_session(&name);
            on_the_way.extend_from_slice(b"H\n");
        }
        Self {
            changes: host.changes(),
            beat_at: Instant::now() + HEARTBEAT,
            jobs: from.into_iter().map(sent).collect(),
            host,
            dice,
            lease,
            name,
            on_the_way,
            has_caught_up: false,
            is_closed,
        }
    }

    /// Writes new frames, as the script does. Returns false if there are none.
    fn write_news(&mut self) -> bool {
        for job in self.host.take_added(&self.name) {
            self.jobs.entry(job).or_default();
        }
        let mut frames = String::new();
        for (name, sent) in &mut self.jobs {
            if !sent.has_end {
                frames += &frames_of(name, self.host.job(name), sent, &self.dice);
            }
        }
        if self.dice.once_in(100) {
            // Output of a job that no process follows.
            frames += "D stranger-000000 1 0 3\nhi\n";
        }
        if frames.is_empty() && !std::mem::replace(&mut self.has_caught_up, true) {
            frames += "C\n";
        }
        self.on_the_way.extend_from_slice(frames.as_bytes());
        !frames.is_empty()
    }

    /// The next piece of the script's output.
    async fn receive(&mut self) -> Option<Bytes> {
        loop {
            let frozen_until = self.host.frozen_until();
            if Instant::now() < frozen_until {
                sleep_until(frozen_until).await;
                continue;
            }
            if !self.on_the_way.is_empty() {
                sleep(self.dice.millis(20)).await;
                // In pieces that end anywhere.
                let length = 1 + self.dice.roll(self.on_the_way.len());
                return Some(self.on_the_way.split_to(length).freeze());
            }
            if self.is_closed {
                return None;
            }
            self.changes.mark_unchanged();
            if self.write_news() {
                continue;
            }
            if timeout_at(self.beat_at, self.changes.changed()).await.is_err() {
                self.beat_at = Instant::now() + HEARTBEAT;
                self.on_the_way.extend_from_slice(b"H\n");
            }
        }
    }
}

/// The next frames of a job, whose files are `job`.
fn frames_of(
    name: &str,
    job: Option<JobOnHost>,
    sent: &mut SessionProgress,
    dice: &Dice,
) -> String {
    let Some(job) = job else {
        sent.has_end = true;
        return format!("X {name} 0 0 lost spool_gone\n");
    };
    let mut frames = String::new();
    if !std::mem::replace(&mut sent.has_group, true) {
        frames += &format!("P {name} 4711\n");
    }
    for (stream, printed) in job.printed.iter().enumerate() {
        let mut from = usize::try_from(sent.bytes[stream]).expect("a simulated job prints little");
        // A broken script skips output, or repeats some.
        if dice.once_in(80) {
            from += 1 + dice.roll(9);
        } else if dice.once_in(40) {
            from = from.saturating_sub(1 + dice.roll(9));
        }
        let new = printed.get(from..).unwrap_or_default();
        if !new.is_empty() {
            let piece = &new[..new.len().min(1 + dice.roll(100))];
            frames += &format!("D {name} {} {from} {}\n", stream + 1, piece.len());
            frames += std::str::from_utf8(piece).expect("simulated jobs print ASCII");
            sent.bytes[stream] = (from + piece.len()) as u64;
        }
    }
    let sizes = job.printed.each_ref().map(|printed| printed.len() as u64);
    let is_all_sent = sent.bytes.iter().zip(&sizes).all(|(sent, size)| sent >= size);
    // A broken script ends a job before all of its output is sent.
    if let Some(status) = job.status
        && (is_all_sent || dice.once_in(80))
    {
        sent.has_end = true;
        let [stdout, stderr] = sizes;
        frames += &format!("X {name} {stdout} {stderr} exited {status} - -\n");
    }
    frames
}

impl FollowerSession for SimulatedSession {
    fn next(&mut self) -> BoxFuture<'_, Option<Bytes>> {
        async {
            let lost = self.lease.connection().lost.clone();
            tokio::select! {
                biased;
                () = lost.cancelled() => None,
                received = self.receive() => received,
            }
        }
        .boxed()
    }

    fn close(&mut self) -> BoxFuture<'_, ()> {
        self.is_closed = true;
        std::future::ready(()).boxed()
    }
}

impl Drop for SimulatedSession {
    fn drop(&mut self) {
        self.host.end_session(&self.name);
    }
}
