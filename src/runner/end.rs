use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::link::{Directory, ask};
use super::spawn::{Runner, Shared, pool_error};
use super::{SignalError, SpawnError};
use crate::job::{Job, KillReport, LoginShell, ProcessGroup, Reach, Signal, kill_script};
use crate::ssh::{ChannelError, ChannelWriter};

/// The way a signal took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeliveredVia {
    /// Sent to the job's process group, and to what left it, over a second channel.
    ProcessGroup,
    /// Asked of the server on the job's own channel, which does not tell whether it did.
    Channel,
    /// No process of the job was there to receive it.
    Nothing,
}

/// What came of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignalReport {
    /// The way it took.
    pub delivered_via: DeliveredVia,
    /// It was verified on the host that no process of the job is left.
    pub confirmed_dead: bool,
}

/// How long the host may take to answer, beyond the grace it is asked to give.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the host may take to tell the process group of a job that has just started.
const PGID_TIMEOUT: Duration = Duration::from_secs(2);
/// At shutdown: how long ended jobs may take to be seen as ended.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// How many jobs one script ends; its text must fit into one argument (128 KiB on Linux).
const GROUPS_IN_A_SCRIPT: usize = 1000;
const GOODBYE: Duration = Duration::from_secs(2);

impl<D: Directory> Runner<D> {
    /// Sends `signal` to every process of a job; with `grace`, what still lives after it gets KILL.
    ///
    /// A job that is over can be signalled too: its processes may have survived the connection, or it may have left some in
    /// the background. Then only those are reached that carry its mark.
    pub async fn signal(
        &self,
        job: &Job,
        signal: Signal,
        grace: Option<Duration>,
    ) -> Result<SignalReport, SignalError> {
        let over = job.read_log(|log| log.outcome().is_some());
        let stdin = self.shared.registry().stdin(&job.id);
        match (stdin, job.process_group()) {
            (Some(stdin), _) if !over => end_tree(&self.shared, job, signal, grace, stdin.channel()).await,
            (_, Some(group)) => {
                let report = kill(&self.shared, job, &group, Reach::Marked, (signal, grace)).await?;
                if report.delivered_via == DeliveredVia::Nothing {
                    Err(SignalError::JobEnded)
                } else {
                    Ok(report)
                }
            }
            (_, None) => Err(SignalError::JobEnded),
        }
    }

    /// Ends every job (TERM, grace, KILL), waits until they are over, and closes all connections. Bounded in time.
    pub async fn shutdown(&self) {
        self.shared.stopping.cancel();
        let running: Vec<Arc<Job>> = self.shared.registry().running().cloned().collect();
        let mut by_host: HashMap<String, Vec<Arc<Job>>> = HashMap::new();
        for job in &running {
            by_host.entry(job.spec.host.clone()).or_default().push(Arc::clone(job));
        }
        let mut hosts = JoinSet::new();
        for (host, jobs) in by_host {
            hosts.spawn(end_all(Arc::clone(&self.shared), host, jobs));
        }
        hosts.join_all().await;
        let over = async {
            for job in &running {
                job.wait_for(LAST_WORDS, |log| log.outcome().is_some()).await;
            }
        };
        drop(timeout(LAST_WORDS, over).await);
        let mut goodbyes = JoinSet::new();
        for lease in self.shared.pool.drain() {
            goodbyes.spawn(async move { lease.connection().connection.disconnect().await });
        }
        drop(timeout(GOODBYE, goodbyes.join_all()).await);
        let mut tasks =
            std::mem::take(&mut *self.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        tasks.shutdown().await;
    }
}

/// Signals the tree of a running job: by its process group where the host has told it, else by the channel.
pub(super) async fn end_tree<D: Directory>(
    shared: &Shared<D>,
    job: &Job,
    signal: Signal,
    grace: Option<Duration>,
    channel: &ChannelWriter,
) -> Result<SignalReport, SignalError> {
    job.wait_for(PGID_TIMEOUT, |log| log.pgid().is_some() || log.outcome().is_some()).await;
    if let Some(group) = job.process_group() {
        let report = kill(shared, job, &group, Reach::Tree, (signal, grace)).await?;
        // Nothing was found to signal, and not because all is over: the host can't find a job's processes.
        if report.delivered_via != DeliveredVia::Nothing || report.confirmed_dead {
            return Ok(report);
        }
    }
    for signal in [Some(signal), grace.map(|_| Signal::KILL)].into_iter().flatten() {
        // Servers need not answer, nor obey; the job's end will tell.
        channel.signal(signal.name()).await.ok();
        if let Some(grace) = grace {
            job.wait_for(grace, |log| log.outcome().is_some()).await;
        }
    }
    Ok(SignalReport { delivered_via: DeliveredVia::Channel, confirmed_dead: false })
}

async fn kill<D: Directory>(
    shared: &Shared<D>,
    job: &Job,
    group: &ProcessGroup,
    reach: Reach,
    (signal, grace): (Signal, Option<Duration>),
) -> Result<SignalReport, SignalError> {
    let script = |shell| kill_script(std::slice::from_ref(group), reach, (signal, grace), shell);
    let answer =
        run_script(shared, &job.spec.host, script, grace.unwrap_or_default() + ANSWER_TIMEOUT).await?;
    // A host that answers without a report has not run the script.
    let report = KillReport::parse(&answer).unwrap_or_default();
    let delivered_via = if report.delivered { DeliveredVia::ProcessGroup } else { DeliveredVia::Nothing };
    Ok(SignalReport { delivered_via, confirmed_dead: report.dead })
}

async fn run_script<D: Directory>(
    shared: &Shared<D>,
    host: &str,
    script: impl Fn(LoginShell) -> String,
    limit: Duration,
) -> Result<String, SignalError> {
    let unreachable = |error: SpawnError| SignalError::Unreachable(Arc::new(error));
    let mut lease = shared.pool.borrow(host);
    loop {
        let borrowed = lease.is_some();
        let link = match lease.take() {
            Some(lease) => lease,
            None => shared.pool.lease(host).await.map_err(|error| unreachable(pool_error(error)))?,
        };
        let script = script(link.connection().shell);
        let asked = async { ask(link.connection().open().await?.channel, &script, limit).await };
        return match asked.await {
            Ok(answer) => Ok(answer),
            Err(ChannelError::TimedOut(limit)) => Err(SignalError::TimedOut(limit)),
            // The borrowed place was one too many, or its connection has just died: take one of our own.
            Err(ChannelError::OpenRefused | ChannelError::ConnectionLost) if borrowed => continue,
            Err(source) => Err(unreachable(SpawnError::Channel { host: host.to_owned(), source })),
        };
    }
}

/// Ends jobs of one host in one go, without making a new connection for it.
async fn end_all<D: Directory>(shared: Arc<Shared<D>>, host: String, jobs: Vec<Arc<Job>>) {
    // A job that has just started may not have told its group yet.
    let told = async {
        for job in &jobs {
            job.wait_for(PGID_TIMEOUT, |log| log.pgid().is_some() || log.outcome().is_some()).await;
        }
    };
    drop(timeout(PGID_TIMEOUT, told).await);
    let groups: Vec<ProcessGroup> = jobs.iter().filter_map(|job| job.process_group()).collect();
    let grace = shared.limits.kill_grace();
    let limit = grace + ANSWER_TIMEOUT;
    for groups in groups.chunks(GROUPS_IN_A_SCRIPT) {
        let script = |shell| kill_script(groups, Reach::Tree, (Signal::TERM, Some(grace)), shell);
        let answer = run_script(&shared, &host, script, limit).await;
        match answer.map(|answer| KillReport::parse(&answer).unwrap_or_default()) {
            Ok(KillReport { dead: true, .. }) => {}
            Ok(report) => tracing::warn!(host, ?report, "not every job is verified dead"),
            Err(error) => tracing::warn!(host, %error, "jobs could not be ended"),
        }
    }
    for job in jobs.iter().filter(|job| job.process_group().is_none()) {
        let stdin = shared.registry().stdin(&job.id);
        if let Some(stdin) = stdin {
            stdin.channel().signal(Signal::TERM.name()).await.ok();
            stdin.channel().close().await.ok();
        }
    }
}
