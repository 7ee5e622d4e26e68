//! One task per host follows all of its durable jobs through one channel. When the session
//! breaks, a new one continues at the received offsets.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::frames::tell;
use super::spool_calls::{fenced, note_refusal, run_on};
use crate::hosts::HostRef;
use crate::runner::state::{Follower, FollowerSession, RunnerState, SessionStart, SpawnError};
use sshjobs_job::spool::{FrameReader, SpoolReply};

/// Silence after which a follower counts as lost. It sends a heartbeat every five seconds.
const SILENCE: Duration = Duration::from_secs(20);
/// Time for which a follower without jobs is kept.
const IDLE: Duration = Duration::from_secs(30);
/// First and longest pause before another attempt to reach a host.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A session that lasted this long was healthy, so the next pause is short again.
const GOOD: Duration = Duration::from_secs(10);

/// Maximum bytes before the first frame that are searched for an answer of the spool's script.
const LONGEST_GREETING: usize = 64 << 10;

/// Why a session ended.
enum Over {
    /// Its channel or its connection was lost.
    Lost {
        /// It had delivered output.
        has_delivered: bool,
    },
    /// It misses a job, so a new session must start.
    MissesJob,
    /// It skipped some of a job's output.
    SkippedOutput,
    /// No job is left to follow.
    Idle,
    /// The scripts are not installed on the host.
    Missing,
}

/// The follower of a host. Starts its task if it is new.
pub(crate) fn follower_of(shared: &Arc<RunnerState>, host: &HostRef) -> Arc<Follower> {
    let (follower, is_new) = shared.followers.of(host);
    if is_new {
        shared.spawn_task(follow_host(
            Arc::clone(shared),
            host.clone(),
            Arc::clone(&follower),
        ));
    }
    follower
}

/// Follows the durable jobs of a host, over any number of connections, until none is left.
async fn follow_host(shared: Arc<RunnerState>, host: HostRef, follower: Arc<Follower>) {
    let mut pause = FIRST_PAUSE;
    loop {
        if follower.is_idle() {
            drop(timeout(IDLE, follower.changed.notified()).await);
            if shared.followers.retire(&host) {
                return;
            }
            continue;
        }
        let began = Instant::now();
        let over = follow(&shared, &host, &follower).await;
        follower.end();
        match over {
            Ok(Over::MissesJob | Over::Idle) => {
                pause = FIRST_PAUSE;
                continue;
            }
            // The host works, so the next pause is short.
            Ok(Over::Lost {
                has_delivered: true,
            }) => pause = FIRST_PAUSE,
            // The same output may be skipped again, so the pause grows with each attempt.
            Ok(
                Over::Lost {
                    has_delivered: false,
                }
                | Over::SkippedOutput,
            ) => {}
            Ok(Over::Missing) => {
                tracing::info!(%host, "the spool's scripts are gone: they are installed again");
            }
            Err(error) => tracing::debug!(%host, %error, "durable jobs can't be followed"),
        }
        follower.note_reach(false);
        if began.elapsed() >= GOOD {
            pause = FIRST_PAUSE;
        }
        sleep(pause.mul_f64(shared.sessions.pause_factor())).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// One session, from its connection to its end.
async fn follow(
    shared: &RunnerState,
    host: &HostRef,
    follower: &Follower,
) -> Result<Over, SpawnError> {
    let sessions = &shared.sessions;
    let start = || {
        let name = format!("f{:016x}", rand::random::<u64>());
        // A job that is added between this list and the first frame causes a new session.
        let from = follower.begin(&name);
        SessionStart { name, from }
    };
    let Some(mut session) = sessions.start(host, &start).await? else {
        return Ok(Over::Lost {
            has_delivered: false,
        });
    };
    let over = read(&mut *session, follower).await;
    session.close().await;
    // The connection is free for what follows.
    drop(session);
    if matches!(over, Over::Missing) {
        sessions.install(host).await?;
    }
    Ok(over)
}

async fn read(session: &mut dyn FollowerSession, follower: &Follower) -> Over {
    let mut frames = FrameReader::default();
    let mut is_up = false;
    let mut has_delivered = false;
    let mut greeting = Vec::new();
    loop {
        let received = tokio::select! {
            // First, so that a session that skipped output never counts as one that was lost.
            biased;
            () = follower.changed.notified() => {
                if follower.is_idle() {
                    return Over::Idle;
                }
                if follower.has_skipped_output() {
                    return Over::SkippedOutput;
                }
                // A session that is still starting has a login shell already. Jobs that it misses
                // are added once it is up.
                if !is_up || follower.has_all() {
                    continue;
                }
                return Over::MissesJob;
            }
            received = timeout(SILENCE, session.next()) => received,
        };
        let Ok(Some(bytes)) = received else {
            return Over::Lost { has_delivered };
        };
        frames.push(bytes.clone());
        while let Some(frame) = frames.next_frame() {
            // The first frame shows that the follower has read its jobs and accepts more.
            if !std::mem::replace(&mut is_up, true) {
                follower.mark_up();
                greeting = Vec::new();
                if !follower.has_all() {
                    return Over::MissesJob;
                }
            }
            has_delivered |= tell(follower, frame).await;
        }
        // Once the session follows, a job's own output may look like this answer.
        if !is_up {
            // All of it, because the answer may come in pieces.
            let room = LONGEST_GREETING.saturating_sub(greeting.len());
            greeting.extend(bytes.iter().take(room));
            let has_line = bytes.contains(&b'\n');
            if has_line
                && SpoolReply::parse(&String::from_utf8_lossy(&greeting))
                    == Some(SpoolReply::Missing)
            {
                return Over::Missing;
            }
        }
    }
}

/// Runs a command of the spool where a job's host is; see [`run_on`].
pub(crate) async fn ask(
    shared: &RunnerState,
    host: &HostRef,
    command: &str,
    input: &[u8],
) -> Result<SpoolReply, SpawnError> {
    let lease = shared.hosts.pool().lease(host).await?;
    let command = fenced(shared, &host.name, command.to_owned());
    let asked = run_on(lease.connection(), &command, input).await;
    asked.map_err(|error| SpawnError::Channel {
        host: host.name.clone(),
        source: note_refusal(lease, error),
    })
}
