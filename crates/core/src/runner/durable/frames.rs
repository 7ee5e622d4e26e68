//! Passes the frames of a session to the recorders of their jobs.

use bytes::Bytes;

use crate::runner::state::{Followed, Follower};
use sshjobs_job::spool::{SpoolEnd, SpoolFrame, SpoolLimit};
use sshjobs_job::{
    EndEvidence, Exit, FarEvent, JobId, LostWhy, MemoryKills, Outcome, Positions, ResourceUse,
    SentSignal, Signal, UsageSeries,
};
use sshjobs_output::Stream;

/// Passes one frame of the follower to the recorder of its job. Returns whether it brought new
/// output.
pub(super) async fn tell(follower: &Follower, frame: SpoolFrame) -> bool {
    match frame {
        SpoolFrame::Alive => false,
        SpoolFrame::CaughtUp => {
            follower.note_caught_up();
            false
        }
        SpoolFrame::ProcessGroup { job, pgid, attempt } => {
            let job = JobId::from(job.as_str());
            pass_on(follower, &job, FarEvent::ProcessGroup(pgid)).await;
            if attempt.is_some() {
                let evidence = EndEvidence {
                    attempts: attempt,
                    ..EndEvidence::default()
                };
                pass_on(follower, &job, FarEvent::Evidence(evidence)).await;
            }
            false
        }
        SpoolFrame::Usage { job, sample } => {
            let mut evidence = EndEvidence::default();
            evidence.series.add(sample);
            pass_on(
                follower,
                &JobId::from(job.as_str()),
                FarEvent::Evidence(evidence),
            )
            .await;
            false
        }
        SpoolFrame::Data {
            job,
            stream,
            offset,
            bytes,
        } => {
            let job = JobId::from(job.as_str());
            let piece = FramePiece {
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
struct FramePiece {
    stream: Stream,
    offset: u64,
    bytes: Bytes,
}

/// The new part of a piece of output. `None` if nothing is new, or if something before it is
/// missing.
fn fresh_data(follower: &Follower, job: &JobId, piece: FramePiece) -> Option<FarEvent> {
    let FramePiece {
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
        Completeness::Complete => Some(FarEvent::Over(outcome(end))),
        Completeness::OutputMissing => {
            tracing::warn!(%job, ?sizes, "a follower has ended a job before all of \
                its output came");
            follower.require_new_session(followed);
            None
        }
        Completeness::FilesShortened => {
            tracing::warn!(%job, ?sizes, "the output on the host has become shorter");
            Some(FarEvent::Over(outcome(SpoolEnd::SpoolGone)))
        }
    }
}

/// Received output of a job, compared with the sizes of its files at its end.
enum Completeness {
    Complete,
    /// The files have more.
    OutputMissing,
    /// A file was shortened after it was read, so output written since may be missing.
    FilesShortened,
}

fn compare_sizes(followed: &Followed, sizes: Positions, end: &SpoolEnd) -> Completeness {
    if !matches!(end, SpoolEnd::Exited { .. }) {
        // The files may be deleted as well.
        return Completeness::Complete;
    }
    if followed.stdout < sizes.stdout || followed.stderr < sizes.stderr {
        Completeness::OutputMissing
    } else if followed.stdout > sizes.stdout || followed.stderr > sizes.stderr {
        Completeness::FilesShortened
    } else {
        Completeness::Complete
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
        abandoned: false,
        by_signal: measured.by_signal,
        ended_on_host: measured.ended_at,
        attempts: measured.attempts,
        fitting_gpus: None,
        gpus: Vec::new(),
        series: UsageSeries::default(),
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::mpsc;

    use super::*;
    use sshjobs_job::spool::EndFigures;
    use sshjobs_job::{Caller, Draft, Job};
    use sshjobs_output::RingLimits;

    const EXITED: SpoolEnd = SpoolEnd::Exited {
        status: 0,
        sent: None,
        limit: None,
        measured: EndFigures {
            kills_in_cgroup: None,
            kills_on_host: None,
            cpu: None,
            peak_memory: None,
            by_signal: None,
            ended_at: None,
            attempts: None,
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
