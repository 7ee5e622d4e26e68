use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::{Mutex, mpsc, watch};
use tokio::time::sleep;

use super::follow_host::{ask, follow_host};
use super::record::{Recording, record_durable};
use super::shared::Shared;
use super::spool_calls::{self, note_refusal};
use super::stdin::Stdin;
use super::{SpawnError, chain};
use crate::hosts::{HostRef, Link};
use crate::job::{
    Announcements, Controls, FarEnd, FarEndError, FarEvent, Job, LoginShell, Recorder, Signal, StdinPlan,
};
use crate::spool::{self, Answer, Order};
use crate::store::Record;

/// Why a host can't have durable jobs.
const NO_SHELL: &str = "its login shell does not answer as a POSIX shell does, or did not in time";
/// Events of a job that wait for its recorder.
const QUEUE: usize = 64;
/// Times that a start is tried: whoever starts a job twice gets the first one.
const TRIES: u32 = 4;
/// Pause before it is tried again, as often as it was tried.
const START_PAUSE: Duration = Duration::from_millis(50);
/// Longest pause between tries to write.
const WRITE_PAUSE: Duration = Duration::from_millis(500);
/// Bytes that are written to a job's stdin at a time.
const PIECE: usize = 32 << 10;

/// Longest time for which output waits on its host while the store is behind.
const STORED_UP: Duration = Duration::from_secs(5);

/// The far end of a durable job: what its host's follower says of it.
pub(super) struct DurableFarEnd {
    events: mpsc::Receiver<FarEvent>,
    job: Arc<Job>,
}

impl FarEnd for DurableFarEnd {
    async fn next(&mut self) -> FarEvent {
        self.job.stored_up(STORED_UP).await;
        // Without a follower the job is left alone.
        self.events.recv().await.unwrap_or(FarEvent::Detached)
    }
}

/// Starts a durable job on its host, and leaves following and recording it to tasks.
pub(super) async fn start_durable(
    shared: &Arc<Shared>,
    job: &Arc<Job>,
    record: Option<Record>,
) -> Result<(), SpawnError> {
    let (host, order) = (HostRef::of(job), order(shared, job));
    order.check()?;
    let (follower, is_new) = shared.followers.of(&host);
    if is_new {
        shared.leave(follow_host(Arc::clone(shared), host.clone(), Arc::clone(&follower)));
    }
    let mut tries = 0;
    let (told, link) = loop {
        let told = follower.session_name();
        tries += 1;
        match try_start(shared, job, &order, told.as_deref()).await {
            Ok(link) => break (told, link),
            // A server may not have cleaned up yet what ended just now.
            Err(SpawnError::Channel { .. }) if tries < TRIES => sleep(START_PAUSE * tries).await,
            Err(error) => return Err(error),
        }
    };
    if let (Some(storing), Some(record)) = (&shared.storing, record) {
        storing.keep(job, record, link.machine.clone());
    }
    let (events, told_events) = mpsc::channel(QUEUE);
    // The channel is empty.
    events.try_send(FarEvent::Started).ok();
    let next = Arc::clone(&link);
    shared.leave(async move { next.begin_ahead(&spool::start()).await });
    leave_recording(shared, job, told_events, Some(&link));
    follower.follow(job, ((0, 0), events), told);
    Ok(())
}

/// Starts a durable job on its host, if it was not started before. Does not follow it.
pub(super) async fn start_on_host(shared: &Arc<Shared>, job: &Job) -> Result<(), SpawnError> {
    let order = order(shared, job);
    order.check()?;
    try_start(shared, job, &order, None).await.map(drop)
}

async fn try_start(
    shared: &Shared,
    job: &Job,
    order: &Order,
    told: Option<&str>,
) -> Result<Arc<Link>, SpawnError> {
    let (host, name) = (HostRef::of(job), job.spec.host.clone());
    let lease = shared.hosts.pool().lease(&host).await?;
    let link = Arc::clone(lease.connection());
    if link.shell == LoginShell::Bare {
        return Err(SpawnError::NotDurable { host: name, why: NO_SHELL.to_owned() });
    }
    let lines = order.lines(job.id.as_str(), told.unwrap_or("-"));
    let answer = spool_calls::start(&link, &lines).await;
    match answer.map_err(|error| SpawnError::channel(job, note_refusal(lease, error)))? {
        Answer::Done => Ok(link),
        Answer::Unsupported(why) => Err(SpawnError::NotDurable { host: name, why }),
        Answer::Failed(why) => Err(SpawnError::Spool { host: name, why }),
        other @ (Answer::Send
        | Answer::Missing
        | Answer::At(_)
        | Answer::Moved(_)
        | Answer::Busy
        | Answer::Closed) => Err(SpawnError::Spool { host: name, why: format!("it answered {other:?}") }),
    }
}

/// Goes on with a durable job that another process has left.
pub(super) fn resume_durable(shared: &Arc<Shared>, job: &Arc<Job>, positions: (u64, u64)) {
    let host = HostRef::of(job);
    let (follower, is_new) = shared.followers.of(&host);
    if is_new {
        shared.leave(follow_host(Arc::clone(shared), host, Arc::clone(&follower)));
    }
    let (events, told_events) = mpsc::channel(QUEUE);
    job.note_reach(false);
    leave_recording(shared, job, told_events, None);
    follower.follow(job, (positions, events), None);
}

fn leave_recording(
    shared: &Arc<Shared>,
    job: &Arc<Job>,
    events: mpsc::Receiver<FarEvent>,
    link: Option<&Arc<Link>>,
) {
    let stdin = stdin(shared, job, link.map(|_| 0));
    shared.registry().start_durable(&job.id, Arc::clone(&stdin), link);
    leave_recording_from(shared, job, DurableFarEnd { events, job: Arc::clone(job) });
}

/// Leaves a job whose far end announces nothing in its output to a task that records it.
pub(super) fn leave_recording_from(shared: &Arc<Shared>, job: &Arc<Job>, far_end: impl FarEnd + 'static) {
    let recorder = Recorder::new(Announcements::new(&job.mark, 0), Duration::ZERO);
    let recording = Recording::new(far_end, Arc::clone(job), recorder);
    shared.leave(record_durable(Arc::clone(shared), recording));
}

/// The stdin of a durable job that another process follows.
pub(super) fn stdin_on_host(shared: &Arc<Shared>, job: &Arc<Job>) -> Arc<Stdin> {
    stdin(shared, job, None)
}

/// A durable job's stdin of which so much is written; of a job that was begun by another process the host has to tell.
fn stdin(shared: &Arc<Shared>, job: &Arc<Job>, known: Option<u64>) -> Arc<Stdin> {
    let is_closed = !matches!(job.spec.stdin, StdinPlan::Open);
    let controls = Arc::new(DurableControls {
        shared: Arc::downgrade(shared),
        job: Arc::clone(job),
        writer: format!("{:016x}", rand::random::<u64>()),
        position: Mutex::new(Position { known, in_flight: Vec::new() }),
    });
    Arc::new(Stdin::durable(controls, Arc::clone(job), watch::Sender::new(0).subscribe(), is_closed))
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

/// The way to a durable job's stdin: each piece is written by a short command that says how far stdin has come, so that a piece
/// whose answer was lost is sent again, and never doubled.
struct DurableControls {
    shared: std::sync::Weak<Shared>,
    job: Arc<Job>,
    /// Tells what was written from here from what others have written.
    writer: String,
    position: Mutex<Position>,
}

struct Position {
    /// Bytes written so far; none when the host has to tell.
    known: Option<u64>,
    /// What was sent, and nobody has waited for the answer.
    in_flight: Vec<u8>,
}

/// How far stdin has come on the host.
enum Come {
    /// The piece is written; this is its end.
    Here(u64),
    /// The piece is not written, because stdin stands here: another writer was faster.
    Moved(u64),
}

impl DurableControls {
    async fn write_piece(&self, data: &[u8]) -> Result<usize, FarEndError> {
        let mut position = self.position.lock().await;
        let sent = std::mem::take(&mut position.in_flight);
        let is_repeat = !sent.is_empty() && data.starts_with(&sent);
        // Whoever has given up waiting for a piece, and writes it again, must write the same one.
        let length = if is_repeat { sent.len() } else { data.len().min(PIECE) };
        let piece = &data[..length];
        let mut at = match position.known {
            Some(at) if sent.is_empty() || is_repeat => at,
            _ => self.ask_where().await?,
        };
        loop {
            (position.known, position.in_flight) = (Some(at), piece.to_vec());
            let write = || spool::write(self.job.id.as_str(), (at, length), &self.writer);
            match self.ask_until_done(write, piece).await? {
                Come::Moved(now) => at = now,
                Come::Here(now) => {
                    (position.known, position.in_flight) = (Some(now), Vec::new());
                    return Ok(length);
                }
            }
        }
    }

    /// How far stdin has come.
    async fn ask_where(&self) -> Result<u64, FarEndError> {
        let ask = || spool::write(self.job.id.as_str(), (u64::MAX, 0), &self.writer);
        let (Come::Here(at) | Come::Moved(at)) = self.ask_until_done(ask, &[]).await?;
        Ok(at)
    }

    /// Asks again until there is an answer: while the host is out of reach, and while what was written before waits to be read.
    async fn ask_until_done(&self, command: impl Fn() -> String, input: &[u8]) -> Result<Come, FarEndError> {
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
        // Nobody but the script that knows the job's processes can signal them.
        async { Ok(()) }.boxed()
    }

    fn resize(&self, _size: (u32, u32)) -> BoxFuture<'_, Result<(), FarEndError>> {
        async { Err(FarEndError::Unsupported("has a terminal of the size that it was started with")) }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
        async { Ok(()) }.boxed()
    }

    fn outlives_us(&self) -> bool {
        true
    }
}
