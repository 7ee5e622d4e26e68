//! Starts durable jobs on their hosts. Repeating a start is safe: a host starts each job at most
//! once.

use std::num::NonZeroU64;
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use super::follow_host::follower_of;
use super::spool_calls::{self, note_refusal};
use crate::hosts::{BecomeError, HostRef, Lease, Link};
use crate::job::{
    Become, BecomeRefusal, Job, MachineId, Nonce, ProgramEnd, StdinPlan, from_home, whole_script,
};
use crate::output::printable;
use crate::runner::state::{Follower, Shared, SpawnError};
use crate::spool::{self, Answer, BecomeOrder, Order};

/// Time limit of the script on the host for a change of the user, in seconds.
const GATE_SECONDS: u64 = 30;
/// Maximum attempts to start a job.
const MOST_ATTEMPTS: u32 = 4;

/// A durable job that runs on its host.
pub(crate) struct StartedOnHost {
    pub(super) follower: Arc<Follower>,
    pub(super) link: Arc<Link>,
    /// The running session that the host asked to follow the job, if any.
    pub(super) session: Option<String>,
}

impl StartedOnHost {
    /// The machine on which the job runs, if it reported one.
    pub(crate) fn machine(&self) -> Option<MachineId> {
        self.link.machine()
    }
}

/// Starts a job on its host. If the server refuses a channel it is asked again.
///
/// Obeys `abandoned` up to the moment at which the start order is sent: from then on the host may
/// run the job, so its answer is awaited.
pub(crate) async fn start_on_host(
    shared: &Arc<Shared>,
    job: &Job,
    abandoned: &CancellationToken,
) -> Result<StartedOnHost, SpawnError> {
    let mut order = order(shared, job);
    order.check()?;

    let host = HostRef::of(job);
    if let (Some(becomes), Some(of_host)) = (&job.spec.becomes, &mut order.becomes) {
        of_host.password = shared.hosts.known_become_password(&host, becomes).await?;
    }
    // Held until the job is followed, so that the follower is not retired meanwhile.
    let follower = follower_of(shared, &host);
    let mut attempts = 0;
    // A password that a person gave.
    let mut asked = None;
    loop {
        // Read before each attempt, because the session may have ended since the last one.
        let session = follower.session_name();
        attempts += 1;
        let lease = tokio::select! {
            lease = shared.hosts.pool().lease(&host) => lease?,
            () = abandoned.cancelled() => return Err(SpawnError::Abandoned),
            () = shared.stopping.cancelled() => return Err(SpawnError::ShuttingDown),
        };
        match send_order(lease, job, &order, session).await {
            Ok(confirmed) => {
                if let (Some(becomes), Some(password)) = (&job.spec.becomes, asked) {
                    shared.hosts.keep_become_password(&host, becomes, password).await;
                }
                return Ok(StartedOnHost {
                    follower,
                    link: confirmed.link,
                    session: confirmed.session,
                });
            }
            // Nothing runs. A person is asked only now, because most hosts ask for no password.
            Err(SpawnError::Become(error))
                if matches!(error.refusal, BecomeRefusal::NoPassword(_)) && asked.is_none() =>
            {
                let password = shared.hosts.become_password(&host, &error.becomes).await;
                let password =
                    password.map_err(|refusal| Box::new(BecomeError { refusal, ..*error }))?;
                asked = Some(password.clone());
                if let Some(becomes) = &mut order.becomes {
                    becomes.password = Some(password);
                }
            }
            // The pool knows of the failure, so the next lease may be on another connection.
            Err(SpawnError::Channel { .. }) if attempts < MOST_ATTEMPTS => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends the start order of a job once more, and does not follow the job. For a start that was
/// interrupted.
pub(crate) async fn repeat_start(shared: &Arc<Shared>, job: &Job) -> Result<(), SpawnError> {
    let order = order(shared, job);
    order.check()?;
    let lease = shared.hosts.pool().lease(&HostRef::of(job)).await?;
    send_order(lease, job, &order, None).await.map(drop)
}

/// A host's confirmation that a job has started.
struct Confirmed {
    link: Arc<Link>,
    /// The running session that was asked to follow the job, if any.
    session: Option<String>,
}

async fn send_order(
    lease: Lease<Arc<Link>>,
    job: &Job,
    order: &Order,
    session: Option<String>,
) -> Result<Confirmed, SpawnError> {
    let host = job.spec.host.clone();
    let link = Arc::clone(lease.connection());

    // No session is called "-", so the host notifies none.
    let lines = order.lines(job.id.as_str(), session.as_deref().unwrap_or("-"));
    let answer = spool_calls::start(&link, &lines)
        .await
        .map_err(|error| SpawnError::channel(job, note_refusal(lease, error)))?;

    match answer {
        Answer::Told => Ok(Confirmed { link, session }),
        Answer::Done => Ok(Confirmed {
            link,
            session: None,
        }),
        Answer::Unsupported(why) => Err(SpawnError::NotDurable { host, why }),
        Answer::NotBecome(why) if let Some(becomes) = &job.spec.becomes => {
            Err(Box::new(BecomeError {
                host,
                becomes: becomes.clone(),
                refusal: refusal(becomes, &why),
            })
            .into())
        }
        Answer::Failed(why) => Err(SpawnError::Spool { host, why }),
        other @ (Answer::Send
        | Answer::Missing
        | Answer::At(_)
        | Answer::Moved(_)
        | Answer::Busy
        | Answer::NotBecome(_)
        | Answer::Closed) => Err(SpawnError::Spool {
            host,
            why: format!("it answered {other:?}"),
        }),
    }
}

/// The reason in the words of the script on the host: `wrong`, `password`, `timeout`, or the exit
/// status and last words of the program.
fn refusal(becomes: &Become, why: &str) -> BecomeRefusal {
    let (reason, rest) = why.split_once(' ').unwrap_or((why, ""));
    let (status, words) = rest.split_once(' ').unwrap_or((rest, ""));
    match reason {
        "wrong" => BecomeRefusal::WrongPassword,
        "password" => BecomeRefusal::NoPassword("none is configured".to_owned()),
        "timeout" => BecomeRefusal::TimedOut(GATE_SECONDS),
        _ => ProgramEnd {
            status: status.parse().ok(),
            words: printable(words.trim()),
            is_answered: reason == "answered",
            on_terminal: false,
        }
        .explain(becomes.method()),
    }
}

/// The order with which a host starts and supervises a job.
fn order(shared: &Shared, job: &Job) -> Order {
    let spec = &job.spec;
    Order {
        mark: job.mark.as_str().to_owned(),
        command: spec.command.clone(),
        cwd: spec.cwd.as_deref().map(|directory| from_home(directory).to_owned()),
        env: spec.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect(),
        stdin: match &spec.stdin {
            StdinPlan::Open => spool::Stdin::Open,
            StdinPlan::Closed => spool::Stdin::Closed,
            StdinPlan::Text(text) => spool::Stdin::Text(text.clone()),
        },
        timeout: spec.timeout,
        grace: shared.limits.kill_grace,
        quota: shared.limits.spool_bytes_per_job.map_or(0, NonZeroU64::get),
        terminal: spec
            .terminal
            .as_ref()
            .map(|terminal| (terminal.term.clone(), terminal.cols, terminal.rows)),
        drain: shared.limits.drain,
        becomes: spec.becomes.as_ref().map(|becomes| BecomeOrder {
            program: becomes.method().as_str(),
            user: becomes.user().to_owned(),
            gate: Nonce::new().as_str().to_owned(),
            script: whole_script(spec),
            password: None,
        }),
    }
}
