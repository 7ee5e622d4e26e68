//! One task per host follows all of its durable jobs through one channel. When the session
//! breaks, a new one continues at the received offsets.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep, timeout};

use super::spool_calls::{fenced, install, note_refusal, run_on};
use crate::hosts::{HostRef, Lease, Link};
use crate::job::{
    EndEvidence, Exit, FarEvent, JobId, LostWhy, MemoryKills, Outcome, Positions, ResourceUse,
    SentSignal, Signal,
};
use crate::output::Stream;
use crate::runner::state::{Followed, Follower, Shared, SpawnError};
use crate::spool::{self, Answer, FollowFrom, Frames, SpoolEnd, SpoolFrame, SpoolLimit};
use crate::ssh::{ChannelError, ChannelEvent, ChannelReader, ChannelWriter};

/// Silence after which a follower counts as lost. It sends a heartbeat every five seconds.
const SILENCE: Duration = Duration::from_secs(20);
/// Time for which a follower without jobs is kept.
const IDLE: Duration = Duration::from_secs(30);
/// First and longest pause before another attempt to reach a host.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// A session that lasted this long was healthy, so the next pause is short again.
const GOOD: Duration = Duration::from_secs(10);

/// Why a session ended.
enum Over {
    /// Its channel or its connection was lost.
    Lost {
        /// It had delivered output.
        has_delivered: bool,
    },
    /// It misses a job, so a new session must start.
    Changed,
    /// It skipped some of a job's output.
    SkippedOutput,
    /// No job is left to follow.
    Idle,
    /// The scripts are not installed on the host.
    Missing,
}

/// The follower of a host. Starts its task if it is new.
pub(super) fn follower_of(shared: &Arc<Shared>, host: &HostRef) -> Arc<Follower> {
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
async fn follow_host(shared: Arc<Shared>, host: HostRef, follower: Arc<Follower>) {
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
        // Other processes may have lost the same host at the same moment.
        sleep(pause.mul_f64(rand::random_range(0.5..1.5))).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn failed(host: &HostRef, source: ChannelError) -> SpawnError {
    SpawnError::Channel {
        host: host.name.clone(),
        source,
    }
}

/// One session, from its connection to its end.
async fn follow(shared: &Shared, host: &HostRef, follower: &Follower) -> Result<Over, SpawnError> {
    let lease = shared.hosts.pool().lease(host).await?;
    if !lease.connection().answers().await {
        return Ok(Over::Lost {
            has_delivered: false,
        });
    }
    let name = format!("f{:016x}", rand::random::<u64>());
    // A job that is added between this list and the first frame causes a new session.
    let from = follower.begin(&name);
    let (mut reader, writer) = match begin_following(lease.connection(), &name, &from).await {
        Ok(opened) => opened,
        Err(error) => return Err(failed(host, note_refusal(lease, error))),
    };
    let link = Arc::clone(lease.connection());
    let days = shared.limits.keep_stored.as_secs() / (24 * 3600);
    // Housekeeping; no job waits for it.
    shared.spawn_task(async move { drop(run_on(&link, &spool::sweep(days), &[]).await) });
    let over = read(&mut reader, follower, &lease).await;
    // A lost connection needs no closing.
    writer.close().await.ok();
    if matches!(over, Over::Missing)
        && let Answer::Failed(why) | Answer::Unsupported(why) =
            install(lease.connection()).await.map_err(|source| failed(host, source))?
    {
        return Err(SpawnError::Spool {
            host: host.name.clone(),
            why,
        });
    }
    Ok(over)
}

/// Starts a follower on a host and sends it the list of jobs. It ends when the writer is closed.
pub(crate) async fn begin_following(
    link: &Link,
    name: &str,
    from: &[FollowFrom],
) -> Result<(ChannelReader, ChannelWriter), ChannelError> {
    let channel = link.open().await?.channel;
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
    let mut is_up = false;
    let mut has_delivered = false;
    loop {
        let event = tokio::select! {
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
                return Over::Changed;
            }
            event = timeout(SILENCE, reader.next()) => event,
        };
        let bytes = match event {
            Ok(Some(ChannelEvent::Data(bytes))) => bytes,
            Ok(None | Some(ChannelEvent::Close | ChannelEvent::Failure)) | Err(_) => {
                return Over::Lost { has_delivered };
            }
            Ok(Some(_)) => continue,
        };
        lease.connection().traffic.note(bytes.len());
        frames.push(bytes.clone());
        while let Some(frame) = frames.next_frame() {
            // The first frame shows that the follower has read its jobs and accepts more.
            if !std::mem::replace(&mut is_up, true) {
                follower.mark_up();
                if !follower.has_all() {
                    return Over::Changed;
                }
            }
            has_delivered |= tell(follower, frame).await;
        }
        // Once the session follows, a job's own output may look like this answer.
        if !is_up && Answer::parse(&String::from_utf8_lossy(&bytes)) == Some(Answer::Missing) {
            return Over::Missing;
        }
    }
}

/// Passes one frame of the follower to the recorder of its job. Returns whether it brought new
/// output.
async fn tell(follower: &Follower, frame: SpoolFrame) -> bool {
    match frame {
        SpoolFrame::Alive => false,
        SpoolFrame::CaughtUp => {
            follower.note_caught_up();
            false
        }
        SpoolFrame::ProcessGroup { job, pgid } => {
            let job = JobId::from(job.as_str());
            pass_on(follower, &job, FarEvent::ProcessGroup(pgid)).await;
            false
        }
        SpoolFrame::Data {
            job,
            stream,
            offset,
            bytes,
        } => {
            let job = JobId::from(job.as_str());
            let piece = Piece {
                stream,
                offset,
                bytes,
            };
            let Some(event) = fresh_data(follower, &job, piece) else { return false };
            pass_on(follower, &job, event).await;
            true
        }
        SpoolFrame::End {
            job,
            stdout,
            stderr,
            end,
        } => {
            let job = JobId::from(job.as_str());
            let evidence = evidence_of(&end);
            let sizes = Positions { stdout, stderr };
            let Some(event) = end_of(follower, &job, sizes, end) else { return false };
            pass_on(follower, &job, FarEvent::Evidence(evidence)).await;
            pass_on(follower, &job, event).await;
            false
        }
    }
}

/// Passes an event to the recorder of its job. After its last event, the job is not followed any more.
async fn pass_on(follower: &Follower, job: &JobId, event: FarEvent) {
    let is_last = event.is_last();
    // Cloned out of the lock, because a full queue makes the send wait for a slow store.
    let events = {
        let all = follower.followed();
        follower.note_stray(&all, job);
        all.get(job).map(|followed| followed.events.clone())
    };
    if let Some(events) = events {
        // Fails only if the recorder has ended.
        events.send(event).await.ok();
    }
    if is_last {
        follower.followed().remove(job);
        follower.changed.notify_one();
    }
}

/// A piece of output and its position in its stream.
struct Piece {
    stream: Stream,
    offset: u64,
    bytes: Bytes,
}

/// The new part of a piece of output. `None` if nothing is new, or if something before it is
/// missing.
fn fresh_data(follower: &Follower, job: &JobId, piece: Piece) -> Option<FarEvent> {
    let Piece {
        stream,
        offset,
        mut bytes,
    } = piece;
    let mut all = follower.followed();
    follower.note_stray(&all, job);
    let followed = all.get_mut(job)?;
    let known = match stream {
        Stream::Stdout => &mut followed.stdout,
        Stream::Stderr => &mut followed.stderr,
    };
    // A new session may repeat bytes that were received. An offset beyond them is a gap.
    let seen = known.checked_sub(offset).and_then(|seen| usize::try_from(seen).ok());
    let Some(seen) = seen else {
        tracing::warn!(%job, offset, known, "a follower has skipped output");
        follower.require_new_session(followed);
        return None;
    };
    if seen >= bytes.len() {
        return None;
    }
    let fresh = bytes.split_off(seen);
    *known += fresh.len() as u64;
    Some(FarEvent::Data(stream.into(), fresh))
}

/// The end of a job, once all of its output has arrived. `sizes` are the lengths of stdout and
/// stderr on the host.
fn end_of(follower: &Follower, job: &JobId, sizes: Positions, end: SpoolEnd) -> Option<FarEvent> {
    let mut all = follower.followed();
    follower.note_stray(&all, job);
    let followed = all.get_mut(job)?;
    match compare_sizes(followed, sizes, &end) {
        Came::All => Some(FarEvent::Over(outcome(end))),
        Came::TooLittle => {
            tracing::warn!(%job, ?sizes, "a follower has ended a job before all of \
                its output came");
            follower.require_new_session(followed);
            None
        }
        Came::MoreThanThereIs => {
            tracing::warn!(%job, ?sizes, "the output on the host has become shorter");
            Some(FarEvent::Over(outcome(SpoolEnd::SpoolGone)))
        }
    }
}

/// Received output of a job, compared with the sizes of its files at its end.
enum Came {
    All,
    TooLittle,
    /// A file was shortened after it was read, so output written since may be missing.
    MoreThanThereIs,
}

fn compare_sizes(followed: &Followed, sizes: Positions, end: &SpoolEnd) -> Came {
    if !matches!(end, SpoolEnd::Exited { .. }) {
        // The files may be deleted as well.
        return Came::All;
    }
    if followed.stdout < sizes.stdout || followed.stderr < sizes.stderr {
        Came::TooLittle
    } else if followed.stdout > sizes.stdout || followed.stderr > sizes.stderr {
        Came::MoreThanThereIs
    } else {
        Came::All
    }
}

/// A shell reports a signal as a status of 128 or more, with which a command may also exit. So it
/// counts as a signal only if one was sent.
pub(crate) fn outcome(end: SpoolEnd) -> Outcome {
    match end {
        SpoolEnd::Exited {
            status,
            sent,
            limit,
            measured: _,
        } => {
            let was_signalled = sent.is_some() || limit.is_some();
            let exit = match Signal::of_status(status) {
                Some(signal) if was_signalled => Exit::Signal(signal.name().to_owned()),
                Some(_) | None => Exit::Status(status),
            };
            match limit {
                Some(SpoolLimit::Time) => Outcome::TimedOut(Some(exit)),
                Some(SpoolLimit::Quota) | None => Outcome::Ended(exit),
            }
        }
        SpoolEnd::HostRebooted => Outcome::Lost(LostWhy::HostRebooted, None),
        SpoolEnd::SupervisorDied => Outcome::Lost(LostWhy::SupervisorDied, None),
        SpoolEnd::SpoolGone => Outcome::Lost(LostWhy::SpoolGone, None),
    }
}

/// Facts about the end of a job that its outcome does not contain.
fn evidence_of(end: &SpoolEnd) -> EndEvidence {
    let SpoolEnd::Exited {
        sent,
        limit,
        measured,
        ..
    } = end
    else {
        return EndEvidence::default();
    };
    EndEvidence {
        sent: sent.as_ref().map(|signal| SentSignal {
            signal: signal.clone(),
            then_kill: None,
        }),
        exceeded_quota: *limit == Some(SpoolLimit::Quota),
        by_signal: measured.by_signal,
        ended_on_host: measured.ended_at,
        used: ResourceUse {
            cpu: measured.cpu,
            peak_memory: measured.peak_memory,
            memory_kills: MemoryKills {
                in_cgroup: measured.kills_in_cgroup,
                on_host: measured.kills_on_host,
            },
        },
    }
}

/// Runs a command of the spool where a job's host is; see [`run_on`].
pub(crate) async fn ask(
    shared: &Shared,
    host: &HostRef,
    command: &str,
    input: &[u8],
) -> Result<Answer, SpawnError> {
    let lease = shared.hosts.pool().lease(host).await?;
    let command = fenced(shared, &host.name, command.to_owned());
    let asked = run_on(lease.connection(), &command, input).await;
    asked.map_err(|error| SpawnError::Channel {
        host: host.name.clone(),
        source: note_refusal(lease, error),
    })
}

#[cfg(test)]
mod tests {
    use tokio::sync::mpsc;

    use super::*;
    use crate::job::{Caller, Draft, Job};
    use crate::output::RingLimits;
    use crate::spool::Measured;

    const EXITED: SpoolEnd = SpoolEnd::Exited {
        status: 0,
        sent: None,
        limit: None,
        measured: Measured {
            kills_in_cgroup: None,
            kills_on_host: None,
            cpu: None,
            peak_memory: None,
            by_signal: None,
            ended_at: None,
        },
    };

    fn job() -> Arc<Job> {
        let draft = Draft::new("web1", "make").try_into().unwrap();
        Arc::new(Job::new(Caller::local(), draft, RingLimits::default()))
    }

    fn ended(job: &Job, stdout: u64) -> SpoolFrame {
        SpoolFrame::End {
            job: job.id.as_str().to_owned(),
            stdout,
            stderr: 0,
            end: EXITED,
        }
    }

    #[tokio::test]
    async fn an_end_with_more_output_than_came_begins_another_session() {
        let job = job();
        let follower = Follower::default();
        let (events, mut told) = mpsc::channel(8);
        follower.follow(
            &job,
            Positions {
                stdout: 5,
                stderr: 0,
            },
            events,
            None,
        );
        follower.begin("first");

        tell(&follower, ended(&job, 9)).await;

        assert!(told.try_recv().is_err(), "the job is not over");
        assert!(follower.has_skipped_output() && !follower.has_all());
    }

    #[tokio::test]
    async fn a_job_whose_files_were_shortened_is_lost() {
        let job = job();
        let follower = Follower::default();
        let (events, mut told) = mpsc::channel(8);
        follower.follow(
            &job,
            Positions {
                stdout: 5,
                stderr: 0,
            },
            events,
            None,
        );

        tell(&follower, ended(&job, 4)).await;

        assert!(matches!(told.try_recv(), Ok(FarEvent::Evidence(_))));
        let event = told.try_recv().unwrap();
        assert!(
            matches!(
                event,
                FarEvent::Over(Outcome::Lost(LostWhy::SpoolGone, None))
            ),
            "{event:?}"
        );
        assert!(follower.is_idle());
    }

    fn output(job: &Job, offset: u64) -> SpoolFrame {
        let job = job.id.as_str().to_owned();
        let bytes = Bytes::from_static(b"line\n");
        SpoolFrame::Data {
            job,
            stream: Stream::Stdout,
            offset,
            bytes,
        }
    }

    #[tokio::test]
    async fn output_that_a_session_sent_too_early_or_skipped_is_sent_again_by_the_next() {
        let job = job();
        let follower = Follower::default();
        let (events, mut told) = mpsc::channel(8);
        for name in ["first", "second"] {
            follower.begin(name);
            follower.mark_up();
            assert!(follower.has_all());
            if name == "first" {
                // The job was started, and no task follows it yet.
                tell(&follower, output(&job, 0)).await;
                follower.follow(
                    &job,
                    Positions::default(),
                    events.clone(),
                    Some(name.to_owned()),
                );
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
