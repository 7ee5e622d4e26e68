use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use super::followers::Follower;
use super::shared::Shared;
use super::spool_calls::{install, note_refusal, run_on};
use crate::hosts::{HostRef, Lease, Link};
use crate::job::{Exit, FarEvent, JobId, LostWhy, Outcome, Signal};
use crate::output::Stream;
use crate::spool::{self, Answer, FollowFrom, Frames, SpoolEnd, SpoolFrame};
use crate::ssh::{ChannelError, ChannelEvent, ChannelReader, ChannelWriter};

/// Silence after which a follower counts as lost: it says that it is there every five seconds.
const SILENCE: Duration = Duration::from_secs(20);
/// Time for which a follower without jobs is kept.
const IDLE: Duration = Duration::from_secs(30);
/// The first pause before a host is tried again, and the longest.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A session that has lasted so long was a good one.
const GOOD: Duration = Duration::from_secs(10);

/// Why a session is over.
enum Over {
    /// Its channel or its connection is gone.
    Lost {
        /// It had delivered output.
        has_told: bool,
    },
    /// It does not follow all that it should: another is to begin.
    Changed,
    /// There is nothing to follow.
    Idle,
    /// The scripts are not installed.
    Missing,
}

/// Follows the durable jobs of a host, over any number of connections, until there are none.
pub(super) async fn follow_host(shared: Arc<Shared>, host: HostRef, follower: Arc<Follower>) {
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
            Ok(Over::Changed | Over::Idle) => {
                pause = FIRST_PAUSE;
                continue;
            }
            // The host works: no backoff.
            Ok(Over::Lost { has_told: true }) => pause = FIRST_PAUSE,
            Ok(Over::Lost { has_told: false }) => {}
            Ok(Over::Missing) => {
                tracing::info!(%host, "the spool's scripts are gone: they are installed again");
            }
            Err(error) => tracing::debug!(%host, %error, "durable jobs can't be followed"),
        }
        follower.note_reach(false);
        if began.elapsed() >= GOOD {
            pause = FIRST_PAUSE;
        }
        // Others may have lost the same host at the same moment.
        sleep(pause.mul_f64(rand::random_range(0.5..1.5))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// One session: from a connection to its end.
async fn follow(shared: &Shared, host: &HostRef, follower: &Follower) -> Result<Over, super::SpawnError> {
    let lease = shared.hosts.pool().lease(host).await?;
    let failed = |source| super::SpawnError::Channel { host: host.name.clone(), source };
    if !lease.connection().answers().await {
        return Ok(Over::Lost { has_told: false });
    }
    let name = format!("f{:016x}", rand::random::<u64>());
    let from = follower.begin(&name);
    let (mut reader, writer) = match open(&lease, &name, &from).await {
        Ok(opened) => opened,
        Err(error) => return Err(failed(note_refusal(lease, error))),
    };
    let (link, days) = (Arc::clone(lease.connection()), shared.limits.keep_stored_days);
    // It is for later, and nobody waits for it.
    shared.leave(async move { drop(run_on(&link, &spool::sweep(days), &[]).await) });
    let over = read(&mut reader, follower, &lease).await;
    // A connection that is lost needs no closing.
    writer.close().await.ok();
    if matches!(over, Over::Missing)
        && let Answer::Failed(why) | Answer::Unsupported(why) =
            install(lease.connection()).await.map_err(failed)?
    {
        return Err(super::SpawnError::Spool { host: host.name.clone(), why });
    }
    Ok(over)
}

async fn open(
    lease: &Lease<Arc<Link>>,
    name: &str,
    from: &[FollowFrom],
) -> Result<(ChannelReader, ChannelWriter), ChannelError> {
    let channel = lease.connection().open().await?.channel;
    let (reader, writer) = channel.exec(&spool::follow(name)).await?;
    let lines = FollowFrom::lines(from);
    let mut left = lines.as_bytes();
    while !left.is_empty() {
        let written = writer.write(left).await?;
        left = &left[written..];
    }
    Ok((reader, writer))
}

async fn read(reader: &mut ChannelReader, follower: &Follower, lease: &Lease<Arc<Link>>) -> Over {
    let mut frames = Frames::default();
    let (mut is_up, mut has_told) = (false, false);
    loop {
        let event = tokio::select! {
            event = timeout(SILENCE, reader.next()) => event,
            () = follower.changed.notified() => {
                if follower.is_idle() {
                    return Over::Idle;
                }
                if follower.has_all() {
                    continue;
                }
                return Over::Changed;
            }
        };
        let bytes = match event {
            Ok(Some(ChannelEvent::Data(bytes))) => bytes,
            Ok(None | Some(ChannelEvent::Close | ChannelEvent::Failure)) | Err(_) => {
                return Over::Lost { has_told };
            }
            Ok(Some(_)) => continue,
        };
        lease.connection().traffic.note(bytes.len());
        frames.push(bytes.clone());
        while let Some(frame) = frames.next_frame() {
            if !std::mem::replace(&mut is_up, true) {
                follower.is_up();
            }
            has_told |= matches!(frame, SpoolFrame::Data { .. });
            tell(follower, frame).await;
        }
        // Once it follows, a job may print that.
        if !is_up && Answer::parse(&String::from_utf8_lossy(&bytes)) == Some(Answer::Missing) {
            return Over::Missing;
        }
    }
}

/// Tells a job's recorder what the follower has said of it.
async fn tell(follower: &Follower, frame: SpoolFrame) {
    let (job, event) = match frame {
        SpoolFrame::Alive => return,
        SpoolFrame::CaughtUp => {
            follower.note_reach(true);
            return;
        }
        SpoolFrame::ProcessGroup { job, pgid } => (job, FarEvent::ProcessGroup(pgid)),
        SpoolFrame::Data { job, stream, offset, mut bytes } => {
            let (mut all, id) = (follower.followed(), JobId::from(job.as_str()));
            follower.note_stray(&all, &id);
            let Some(followed) = all.get_mut(&id) else { return };
            let known = if stream == Stream::Stdout { &mut followed.stdout } else { &mut followed.stderr };
            let Some(seen) = known.checked_sub(offset).and_then(|seen| usize::try_from(seen).ok()) else {
                tracing::warn!(job, offset, known, "a follower has left something out");
                follower.begin_anew(followed);
                return;
            };
            if seen >= bytes.len() {
                return;
            }
            let fresh = bytes.split_off(seen);
            *known += fresh.len() as u64;
            (job, FarEvent::Data(stream, fresh))
        }
        SpoolFrame::End { job, end } => (job, FarEvent::Over(outcome(end))),
    };
    let id = JobId::from(job.as_str());
    let is_last = event.is_last();
    let events = {
        let all = follower.followed();
        follower.note_stray(&all, &id);
        all.get(&id).map(|followed| followed.events.clone())
    };
    if let Some(events) = events {
        // A recorder that is gone needs to know nothing.
        events.send(event).await.ok();
    }
    if is_last {
        follower.followed().remove(&id);
        follower.changed.notify_one();
    }
}

/// A shell tells a signal as a status of 128 and more, which a command may also exit with; so it counts only if one was sent.
fn outcome(end: SpoolEnd) -> Outcome {
    match end {
        SpoolEnd::Exited { status, sent, timed_out } => {
            let number = status.checked_sub(128).and_then(|number| i32::try_from(number).ok());
            let signal = number.filter(|_| sent.is_some() || timed_out).and_then(Signal::of_number);
            let exit = signal.map_or(Exit::Status(status), |signal| Exit::Signal(signal.name().to_owned()));
            if timed_out { Outcome::TimedOut(Some(exit)) } else { Outcome::Ended(exit) }
        }
        SpoolEnd::HostRebooted => Outcome::Lost(LostWhy::HostRebooted, None),
        SpoolEnd::SupervisorDied => Outcome::Lost(LostWhy::SupervisorDied, None),
        SpoolEnd::SpoolGone => Outcome::Lost(LostWhy::SpoolGone, None),
    }
}

/// Runs a command of the spool's where a job of a host lives; see [`run_on`].
pub(super) async fn ask(
    shared: &Shared,
    host: &HostRef,
    command: &str,
    input: &[u8],
) -> Result<Answer, super::SpawnError> {
    let lease = shared.hosts.pool().lease(host).await?;
    let asked = run_on(lease.connection(), command, input).await;
    asked.map_err(|error| super::SpawnError::Channel {
        host: host.name.clone(),
        source: note_refusal(lease, error),
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use tokio::sync::mpsc;

    use super::*;
    use crate::job::{Caller, Draft, Job};
    use crate::output::RingLimits;

    fn output(job: &Job, offset: u64) -> SpoolFrame {
        let (job, bytes) = (job.id.as_str().to_owned(), Bytes::from_static(b"line\n"));
        SpoolFrame::Data { job, stream: Stream::Stdout, offset, bytes }
    }

    #[tokio::test]
    async fn what_a_session_has_told_too_early_or_left_out_is_told_again_by_another() {
        let job = Arc::new(Job::new(
            Caller::local(),
            Draft::new("web1", "make").try_into().unwrap(),
            RingLimits::default(),
        ));
        let follower = Follower::default();
        let (events, mut told) = mpsc::channel(8);
        for name in ["first", "second"] {
            follower.begin(name);
            follower.is_up();
            assert!(follower.has_all());
            if name == "first" {
                // It was started, and nobody follows it yet.
                tell(&follower, output(&job, 0)).await;
                follower.follow(&job, ((0, 0), events.clone()), Some(name.to_owned()));
            } else {
                tell(&follower, output(&job, 7)).await;
            }
            assert!(!follower.has_all() && told.is_empty(), "{name}");
        }
        let from = follower.begin("third");
        assert_eq!((from.len(), from[0].stdout), (1, 0));
        tell(&follower, output(&job, 0)).await;
        assert!(follower.has_all() && told.try_recv().is_ok());
    }
}
