//! Starts durable jobs on their hosts. Repeating a start is safe: a host starts each job at most
//! once.

use std::num::NonZeroU64;
use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use tokio_util::sync::CancellationToken;

use super::follow_host::follower_of;
use super::spool_calls::{self, fenced};
use crate::hosts::{Asking, BecomeError, GateLogin, HostRef, Hosts, Lease, Link};
use crate::runner::state::{Follower, RunnerState, SpawnError};
use sshjobs_job::spool::{self, BecomeOrder, SpoolOrder, SpoolReply};
use sshjobs_job::{
    BECOME_PASSWORD, Become, BecomeRefusal, CommandShell, Job, LoginShell, MachineId, Nonce,
    ProgramEnd, Stdin, for_shell, from_home, visible_gpus, whole_script,
};
use sshjobs_output::printable;
use sshjobs_output::scrub::hide_in;
use sshjobs_ssh::ChannelError;

/// Time limit of the script on the host for a change of the user, in seconds.
const GATE_SECONDS: u64 = 30;
/// Bytes after which the script on the host cuts the words of a program.
const LONGEST_WORDS: usize = 400;
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
    shared: &Arc<RunnerState>,
    job: &Job,
    abandoned: &CancellationToken,
) -> Result<StartedOnHost, SpawnError> {
    let order = order(shared, job);
    order.check()?;

    let host = HostRef::of(job);
    // Held until the job is followed, so that the follower is not retired meanwhile.
    let follower = follower_of(shared, &host);
    let mut attempts = 0;
    // After an unanswered attempt the order may have arrived, so `Abandoned` (nothing has run) would be wrong.
    let mut if_abandoned = SpawnError::Abandoned;
    loop {
        // Read before each attempt, because the session may have ended since the last one.
        let session = follower.session_name();
        attempts += 1;
        let lease = tokio::select! {
            lease = shared.hosts.pool().lease(&host) => lease?,
            () = abandoned.cancelled() => return Err(if_abandoned),
            () = shared.stopping.cancelled() => return Err(SpawnError::ShuttingDown),
        };
        let sending = Sending {
            hosts: &shared.hosts,
            start: fenced(shared, &job.spec.host, spool::start()),
            job,
            order: &order,
            asking: Asking::for_start_of(job),
        };
        match sending.send(lease, session).await {
            Ok(confirmed) => {
                return Ok(StartedOnHost {
                    follower,
                    link: confirmed.link,
                    session: confirmed.session,
                });
            }
            // Nothing is different on another connection.
            Err(
                error @ SpawnError::Channel {
                    source: ChannelError::NoGreeting(_) | ChannelError::Silent,
                    ..
                },
            ) => return Err(error),
            // The pool knows of the failure, so the next lease may be on another connection.
            Err(error @ SpawnError::Channel { .. }) if attempts < MOST_ATTEMPTS => {
                if_abandoned = error;
            }
            Err(error) => return Err(error),
        }
    }
}

/// Sends the start order of a job once more, and does not follow the job. For a start that was
/// interrupted.
pub(crate) async fn repeat_start(shared: &Arc<RunnerState>, job: &Job) -> Result<(), SpawnError> {
    let order = order(shared, job);
    order.check()?;
    let lease = shared.hosts.pool().lease(&HostRef::of(job)).await?;
    let sending = Sending {
        hosts: &shared.hosts,
        start: fenced(shared, &job.spec.host, spool::start()),
        job,
        order: &order,
        asking: Asking::Nobody,
    };
    sending.send(lease, None).await.map(drop)
}

/// A host's confirmation that a job has started.
struct Confirmed {
    link: Arc<Link>,
    /// The running session that was asked to follow the job, if any.
    session: Option<String>,
}

/// The start order of a job.
struct Sending<'a> {
    hosts: &'a Hosts,
    /// The command of the spool.
    start: String,
    job: &'a Job,
    order: &'a SpoolOrder,
    /// Who is asked for the password of another user.
    asking: Asking<'a>,
}

impl Sending<'_> {
    async fn send(
        &self,
        lease: Lease<Arc<Link>>,
        session: Option<String>,
    ) -> Result<Confirmed, SpawnError> {
        let sent = self.send_with_password(lease.connection(), session).await;
        if let Err(SpawnError::Channel { source, .. }) = &sent
            && matches!(source, ChannelError::OpenRefused)
        {
            lease.note_refusal();
        }
        sent
    }

    /// Sends the order with the password of another user, if the job has one.
    async fn send_with_password(
        &self,
        link: &Arc<Link>,
        session: Option<String>,
    ) -> Result<Confirmed, SpawnError> {
        let Self { hosts, job, .. } = self;
        let host = HostRef::of(job);
        let login = GateLogin {
            host: &host,
            link,
            asking: self.asking,
        };
        let Some(becomes) = &job.spec.becomes else {
            return self.send_once(link, session, None).await;
        };

        let failed = |refusal| {
            SpawnError::from(Box::new(BecomeError {
                host: job.spec.host.clone(),
                becomes: becomes.clone(),
                refusal,
                may_try_another: false,
            }))
        };
        let mut password = hosts.known_become_password(login, becomes).await.map_err(failed)?;
        loop {
            let sent = self.send_once(link, session.clone(), password.as_ref()).await;
            let refusal = match sent {
                Ok(confirmed) => {
                    if let Some(password) = password {
                        hosts.accept_become_password(login, becomes, password);
                    }
                    return Ok(confirmed);
                }
                Err(SpawnError::Become(error)) => error.refusal,
                Err(error) => {
                    hosts.give_up_become_password(login, becomes);
                    return Err(error);
                }
            };
            let may_ask = match (&password, &refusal) {
                // A person is asked only now, because most hosts ask for no password.
                (None, BecomeRefusal::NoPassword(_)) => true,
                (Some(refused), BecomeRefusal::WrongPassword) => {
                    hosts.refuse_become_password(login, becomes, refused)
                }
                _ => false,
            };
            if !may_ask {
                hosts.give_up_become_password(login, becomes);
                return Err(failed(refusal));
            }
            // Nothing runs.
            password = Some(hosts.become_password(login, becomes).await.map_err(failed)?);
        }
    }

    async fn send_once(
        &self,
        link: &Arc<Link>,
        session: Option<String>,
        password: Option<&SecretString>,
    ) -> Result<Confirmed, SpawnError> {
        let job = self.job;
        let host = job.spec.host.clone();

        // No session is called "-", so the host notifies none.
        let follower = session.as_deref().unwrap_or("-");
        let lines = self.order.lines(job.id.as_str(), follower, password);
        let answer = spool_calls::start(link, &self.start, &lines)
            .await
            .map_err(|error| SpawnError::channel(job, error))?;
        let link = Arc::clone(link);

        match answer {
            SpoolReply::Told => Ok(Confirmed { link, session }),
            SpoolReply::Done => Ok(Confirmed {
                link,
                session: None,
            }),
            SpoolReply::Unsupported(why) => Err(SpawnError::NotDurable { host, why }),
            SpoolReply::NotBecome(why) if let Some(becomes) = &job.spec.becomes => {
                let refusal = refusal(becomes, &without(password, why));
                Err(Box::new(BecomeError {
                    host,
                    becomes: becomes.clone(),
                    refusal,
                    may_try_another: false,
                })
                .into())
            }
            SpoolReply::Failed(why) => Err(SpawnError::Spool {
                host,
                why: without(password, why),
            }),
            SpoolReply::Fenced => Err(SpawnError::Spool {
                host,
                why: "another replica has taken the host over".to_owned(),
            }),
            other @ (SpoolReply::Send
            | SpoolReply::Missing
            | SpoolReply::At(_)
            | SpoolReply::Moved(_)
            | SpoolReply::Busy
            | SpoolReply::Taken
            | SpoolReply::NotBecome(_)
            | SpoolReply::Closed) => Err(SpawnError::Spool {
                host,
                why: format!("it answered {other:?}"),
            }),
        }
    }
}

/// The words of a host that was given a password, without it.
fn without(password: Option<&SecretString>, words: String) -> String {
    let Some(password) = password else { return words };
    let is_cut = words.len() >= LONGEST_WORDS;
    let mut words = hide_in(words, BECOME_PASSWORD, password);
    if is_cut {
        // They may end within the password.
        let kept = words.chars().count().saturating_sub(password.expose_secret().chars().count());
        words = words.chars().take(kept).collect();
    }
    words
}

/// The reason in the words of the script on the host: `wrong`, `password`, `timeout`, or the exit
/// status and last words of the program.
fn refusal(becomes: &Become, why: &str) -> BecomeRefusal {
    let (reason, rest) = why.split_once(' ').unwrap_or((why, ""));
    let (status, message) = rest.split_once(' ').unwrap_or((rest, ""));
    match reason {
        "wrong" => BecomeRefusal::WrongPassword,
        "password" => BecomeRefusal::NoPassword("none is configured".to_owned()),
        "timeout" => BecomeRefusal::TimedOut(GATE_SECONDS),
        _ => ProgramEnd {
            status: status.parse().ok(),
            message: printable(message.trim()),
            is_answered: reason == "answered",
            on_terminal: false,
        }
        .explain(becomes.method()),
    }
}

/// The order with which a host starts and supervises a job.
fn order(shared: &RunnerState, job: &Job) -> SpoolOrder {
    let spec = &job.spec;
    let mut env: Vec<(String, SecretString)> =
        spec.env.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let gpus = job.status().evidence.gpus;
    if !gpus.is_empty() {
        let visible = visible_gpus(&gpus).into_iter();
        env.extend(visible.map(|(name, value)| (name.to_owned(), value.into())));
    }
    SpoolOrder {
        mark: job.mark.as_str().to_owned(),
        command: match spec.shell {
            CommandShell::Login => spec.command_line().into_owned(),
            // The host's script passes the command to the login shell, which need not be a POSIX one.
            CommandShell::Posix => for_shell(spec.command_line().into_owned(), LoginShell::Foreign),
        },
        cwd: spec.cwd.as_deref().map(|directory| from_home(directory).to_owned()),
        env,
        stdin: match &spec.stdin {
            Stdin::Open => spool::SpoolStdin::Open,
            Stdin::Closed => spool::SpoolStdin::Closed,
            Stdin::Text(text) => spool::SpoolStdin::Text(text.clone()),
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
        }),
        restart: spec.restart.clone(),
        warn: spec.warn.clone(),
    }
}
