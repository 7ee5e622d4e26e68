//! Starts durable jobs, resumes them in another process, and writes to their stdin.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::sleep;

use super::follow_host::{ask, follow_host};
use super::spool_calls;
use super::spool_calls::note_refusal;
use crate::hosts::{HostRef, Link};
use crate::job::{
    Announcements, Controls, FarEnd, FarEndError, FarEvent, Job, Positions, Recorder, Signal,
    StdinPlan,
};
use crate::output::TerminalSize;
use crate::runner::record::{Recording, record_durable};
use crate::runner::state::{Shared, SpawnError, Stdin, chain};
use crate::spool::{self, Answer, Order};
use crate::store::Record;

/// Maximum events of a job that wait for its recorder.
const QUEUE: usize = 64;
/// Maximum attempts to start a job. Retrying is safe: a second start returns the first one.
const TRIES: u32 = 4;
/// Pause before the second attempt. It grows by this much with each attempt.
const START_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause between attempts to write.
const WRITE_PAUSE: Duration = Duration::from_millis(500);
/// Maximum bytes written to a job's stdin by one command.
const PIECE: usize = 32 << 10;

/// Longest time for which output stays on its host while the store is behind.
const STORED_UP: Duration = Duration::from_secs(5);

/// The far end of a durable job. Its events come from the follower on the host.
pub(crate) struct DurableFarEnd {
    events: mpsc::Receiver<FarEvent>,
    job: Arc<Job>,
}

impl FarEnd for DurableFarEnd {
    async fn next(&mut self) -> FarEvent {
        self.job.stored_up(STORED_UP).await;
        // Without a follower the job stays on its host, unrecorded.
        self.events.recv().await.unwrap_or(FarEvent::Detached)
    }
}

/// Starts a durable job on its host. Tasks follow and record it.
pub(crate) async fn start_durable(
    shared: &Arc<Shared>,
    job: &Arc<Job>,
    record: Option<Record>,
) -> Result<(), SpawnError> {
    let host = HostRef::of(job);
    let order = order(shared, job);
    order.check()?;
    let (follower, is_new) = shared.followers.of(&host);
    if is_new {
        shared.leave(follow_host(
            Arc::clone(shared),
            host.clone(),
            Arc::clone(&follower),
        ));
    }
    let mut tries = 0;
    let Started { link, told } = loop {
        let session = follower.session_name();
        tries += 1;
        match try_start(shared, job, &order, session).await {
            Ok(started) => break started,
            // The server may still be releasing the previous channel.
            Err(SpawnError::Channel { .. }) if tries < TRIES => sleep(START_PAUSE * tries).await,
            Err(error) => return Err(error),
        }
    };
    if let (Some(storing), Some(record)) = (&shared.storing, record) {
        storing.keep(job, record, link.machine());
    }
    let (events, told_events) = mpsc::channel(QUEUE);
    // The channel is empty, so there is room.
    events.try_send(FarEvent::Started).ok();
    leave_recording(shared, job, told_events, Some(&link));
    follower.follow(job, Positions::default(), events, told);
    Ok(())
}

/// Starts a durable job on its host, unless it was started before. Does not follow it.
pub(crate) async fn start_on_host(shared: &Arc<Shared>, job: &Job) -> Result<(), SpawnError> {
    let order = order(shared, job);
    order.check()?;
    try_start(shared, job, &order, None).await.map(drop)
}

/// A durable job that runs on its host.
struct Started {
    link: Arc<Link>,
    /// The running session that was asked to follow the job, if any.
    told: Option<String>,
}

async fn try_start(
    shared: &Shared,
    job: &Job,
    order: &Order,
    session: Option<String>,
) -> Result<Started, SpawnError> {
    let host = HostRef::of(job);
    let name = job.spec.host.clone();
    let lease = shared.hosts.pool().lease(&host).await?;
    let link = Arc::clone(lease.connection());
    let lines = order.lines(job.id.as_str(), session.as_deref().unwrap_or("-"));
    let answer = spool_calls::start(&link, &lines).await;
    match answer.map_err(|error| SpawnError::channel(job, note_refusal(lease, error)))? {
        Answer::Told => Ok(Started {
            link,
            told: session,
        }),
        Answer::Done => Ok(Started { link, told: None }),
        Answer::Unsupported(why) => Err(SpawnError::NotDurable { host: name, why }),
        Answer::Failed(why) => Err(SpawnError::Spool { host: name, why }),
        other @ (Answer::Send
        | Answer::Missing
        | Answer::At(_)
        | Answer::Moved(_)
        | Answer::Busy
        | Answer::Closed) => Err(SpawnError::Spool {
            host: name,
            why: format!("it answered {other:?}"),
        }),
    }
}

/// Resumes a durable job whose process has ended.
pub(crate) fn resume_durable(shared: &Arc<Shared>, job: &Arc<Job>, positions: Positions) {
    let host = HostRef::of(job);
    let (follower, is_new) = shared.followers.of(&host);
    if is_new {
        shared.leave(follow_host(Arc::clone(shared), host, Arc::clone(&follower)));
    }
    let (events, told_events) = mpsc::channel(QUEUE);
    job.note_reach(false);
    leave_recording(shared, job, told_events, None);
    follower.follow(job, positions, events, None);
}

fn leave_recording(
    shared: &Arc<Shared>,
    job: &Arc<Job>,
    events: mpsc::Receiver<FarEvent>,
    link: Option<&Arc<Link>>,
) {
    let stdin = stdin(shared, job, link.map(|_| 0));
    shared.registry().start_durable(&job.id, Arc::clone(&stdin), link);
    leave_recording_from(
        shared,
        job,
        DurableFarEnd {
            events,
            job: Arc::clone(job),
        },
    );
}

/// Leaves recording to a task. For jobs that announce no process group in their output.
pub(crate) fn leave_recording_from(
    shared: &Arc<Shared>,
    job: &Arc<Job>,
    far_end: impl FarEnd + 'static,
) {
    let recorder = Recorder::new(Announcements::new(&job.mark, 0), Duration::ZERO);
    let recording = Recording::new(far_end, Arc::clone(job), recorder);
    shared.leave(record_durable(Arc::clone(shared), recording));
}

/// The stdin of a durable job that another process follows.
pub(crate) fn stdin_on_host(shared: &Arc<Shared>, job: &Arc<Job>) -> Arc<Stdin> {
    stdin(shared, job, None)
}

/// Stdin with a known offset; `None` if another process started the job and the host must be asked.
fn stdin(shared: &Arc<Shared>, job: &Arc<Job>, known: Option<u64>) -> Arc<Stdin> {
    let is_closed = !matches!(job.spec.stdin, StdinPlan::Open);
    let controls = Arc::new(DurableControls {
        shared: Arc::downgrade(shared),
        job: Arc::clone(job),
        writer: format!("{:016x}", rand::random::<u64>()),
        position: Mutex::new(Position {
            known,
            in_flight: Vec::new(),
        }),
    });
    Arc::new(Stdin::durable(
        controls,
        Arc::clone(job),
        watch::Sender::new(0).subscribe(),
        is_closed,
    ))
}

fn order(shared: &Shared, job: &Job) -> Order {
    let spec = &job.spec;
    Order {
        mark: job.mark.as_str().to_owned(),
        command: spec.command.clone(),
        cwd: spec.cwd.as_deref().map(|directory| crate::job::from_home(directory).to_owned()),
        env: spec.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        stdin: match &spec.stdin {
            StdinPlan::Open => spool::Stdin::Open,
            StdinPlan::Closed => spool::Stdin::Closed,
            StdinPlan::Text(text) => spool::Stdin::Text(text.clone()),
        },
        timeout: spec.timeout,
        grace: shared.limits.kill_grace(),
        quota: shared.limits.spool_bytes_per_job,
        terminal: spec
            .terminal
            .as_ref()
            .map(|terminal| (terminal.term.clone(), terminal.cols, terminal.rows)),
        drain: shared.limits.drain(),
    }
}

/// Writes to a durable job's stdin. A short command writes each piece and reports the new offset,
/// so a piece whose answer was lost is sent again without being written twice.
struct DurableControls {
    shared: std::sync::Weak<Shared>,
    job: Arc<Job>,
    /// Distinguishes our writes from those of other writers.
    writer: String,
    position: Mutex<Position>,
}

struct Position {
    /// Bytes written so far. `None` if the host must be asked.
    known: Option<u64>,
    /// The piece that was sent and not yet acknowledged.
    in_flight: Vec<u8>,
}

/// Answer of the host to a write.
enum Come {
    /// The piece was written. This is the new offset.
    Here(u64),
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
            _ => self.ask_where().await?,
        };
        loop {
            (position.known, position.in_flight) = (Some(at), piece.to_vec());
            match self
                .ask_until_done(
                    || spool::write(self.job.id.as_str(), at, length, &self.writer),
                    piece,
                )
                .await?
            {
                Come::Moved(now) => at = now,
                Come::Here(now) => {
                    (position.known, position.in_flight) = (Some(now), Vec::new());
                    return Ok(length);
                }
            }
        }
    }

    /// The current offset of stdin on the host.
    async fn ask_where(&self) -> Result<u64, FarEndError> {
        let (Come::Here(at) | Come::Moved(at)) = self
            .ask_until_done(
                || spool::write(self.job.id.as_str(), u64::MAX, 0, &self.writer),
                &[],
            )
            .await?;
        Ok(at)
    }

    /// Repeats the request until the host answers: while the host is unreachable, and while earlier
    /// input waits to be read.
    async fn ask_until_done(
        &self,
        command: impl Fn() -> String,
        input: &[u8],
    ) -> Result<Come, FarEndError> {
        let mut pause = Duration::from_millis(20);
        loop {
            let shared = self.shared.upgrade().ok_or(FarEndError::ConnectionLost)?;
            match ask(&shared, &HostRef::of(&self.job), &command(), input).await {
                Ok(Answer::At(at)) => return Ok(Come::Here(at)),
                Ok(Answer::Moved(at)) => return Ok(Come::Moved(at)),
                Ok(Answer::Closed) => return Err(FarEndError::StdinEnded),
                Ok(Answer::Busy) => {}
                Ok(other) => tracing::debug!(job = %self.job.id, ?other, "stdin was not written"),
                Err(error) => {
                    tracing::debug!(job = %self.job.id, error = chain(&error), "stdin can't be written now");
                }
            }
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

    fn resize(&self, _size: TerminalSize) -> BoxFuture<'_, Result<(), FarEndError>> {
        async {
            Err(FarEndError::Unsupported(
                "has a terminal of the size that it was started with",
            ))
        }
        .boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
        async { Ok(()) }.boxed()
    }

    fn outlives_us(&self) -> bool {
        true
    }
}
