use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::SignalError;
use super::link::{Directory, Link};
use super::reach::{BRIEF, ask_about};
use super::spawn::{Runner, Shared};
use crate::job::{Job, KillReport, Left, Machine, Phase, ProcessGroup, Reach, Signal, kill_script};
use crate::ssh::{ChannelWriter, Pooled};

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
    /// Why that is not known, if it isn't.
    pub unverified: Option<Unverified>,
}

/// Why it is not known whether a process of a job is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unverified {
    /// The server was asked, which does not tell.
    Channel,
    /// The job's process group has members that don't carry its mark; they were left alone.
    Unmarked,
    /// The account does not see all processes of the host.
    Hidden,
    /// The host does not show its processes.
    Unseen,
    /// The host answered, but not as the script does.
    NoReport,
}

impl SignalReport {
    fn new(report: Option<KillReport>) -> Self {
        let Some(KillReport { delivered, left }) = report else {
            let delivered_via = DeliveredVia::Nothing;
            return Self { delivered_via, confirmed_dead: false, unverified: Some(Unverified::NoReport) };
        };
        let unverified = match left {
            Left::Nothing | Left::Alive => None,
            Left::Unmarked => Some(Unverified::Unmarked),
            Left::Hidden => Some(Unverified::Hidden),
            Left::Unseen => Some(Unverified::Unseen),
        };
        let delivered_via = if delivered { DeliveredVia::ProcessGroup } else { DeliveredVia::Nothing };
        Self { delivered_via, confirmed_dead: left == Left::Nothing, unverified }
    }
}

/// How long the host may take to answer, beyond the grace it is asked to give.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the host may take to tell the process group of a job that has just started.
const PGID_TIMEOUT: Duration = Duration::from_secs(2);
/// At shutdown: how long ended jobs may take to be seen as ended.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// At shutdown: how long a host may take, beyond the grace, to say what came of its jobs.
const LAST_ANSWER: Duration = Duration::from_secs(5);
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
        let (starting, over) = job.read_log(|log| (*log.phase() == Phase::Starting, log.outcome().is_some()));
        let stdin = self.shared.registry().stdin(&job.id);
        if let Some(stdin) = stdin.filter(|_| !over) {
            let report = end_tree(&self.shared, job, signal, grace, stdin.channel()).await?;
            if report.confirmed_dead {
                // Nothing more comes than what is on its way, and for that there is room.
                job.let_go();
            }
            return Ok(report);
        }
        if starting {
            // Nothing was sent yet, and nothing will be.
            self.shared.registry().abandon(&job.id);
            return Ok(SignalReport {
                delivered_via: DeliveredVia::Nothing,
                confirmed_dead: true,
                unverified: None,
            });
        }
        let group = job.process_group().ok_or(SignalError::JobEnded)?;
        let report = kill(&self.shared, job, &group, Reach::Marked, (signal, grace)).await?;
        if report.delivered_via == DeliveredVia::Nothing && report.confirmed_dead {
            return Err(SignalError::JobEnded);
        }
        Ok(report)
    }

    /// Ends every job (TERM, grace, KILL), waits until they are over, and closes all connections. Bounded in time.
    pub async fn shutdown(&self) {
        self.shared.stopping.cancel();
        let running: Vec<Arc<Job>> = self.shared.registry().running().cloned().collect();
        let mut ending = JoinSet::new();
        for (link, jobs) in self.by_link(&running) {
            ending.spawn(end_all(Arc::clone(&self.shared), link, jobs));
        }
        let told: Vec<Arc<Job>> = ending.join_all().await.concat();
        let over = async {
            for job in &told {
                job.wait_for(LAST_WORDS, |log| log.outcome().is_some()).await;
            }
        };
        drop(timeout(LAST_WORDS, over).await);
        let mut goodbyes = JoinSet::new();
        for lease in self.shared.pool.drain().into_iter().filter(|lease| !lease.connection().is_suspect()) {
            goodbyes.spawn(async move { lease.connection().connection.disconnect().await });
        }
        drop(timeout(GOODBYE, goodbyes.join_all()).await);
        let mut tasks =
            std::mem::take(&mut *self.tasks.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
        tasks.shutdown().await;
    }

    /// The jobs by the connections over which each can be ended: its own, or one to the same machine in the same boot.
    fn by_link(&self, jobs: &[Arc<Job>]) -> Vec<(Arc<Link>, Vec<Arc<Job>>)> {
        let mut by_link: Vec<(Arc<Link>, Vec<Arc<Job>>)> = Vec::new();
        let mut of_machine: HashMap<(String, Machine), usize> = HashMap::new();
        for job in jobs {
            let place = self.shared.registry().place(&job.id);
            let Some(link) = place.and_then(|place| place.link.upgrade()) else { continue };
            let machine = link.machine.clone().map(|machine| (job.spec.host.clone(), machine));
            let known = match &machine {
                Some(machine) => of_machine.get(machine).copied(),
                None => by_link.iter().position(|(known, _)| Arc::ptr_eq(known, &link)),
            };
            let index = known.unwrap_or_else(|| {
                by_link.push((Arc::clone(&link), Vec::new()));
                by_link.len() - 1
            });
            let (chosen, of_link) = &mut by_link[index];
            if chosen.is_silent() && !link.is_silent() {
                // The first job speaks for all, over its own connection.
                *chosen = link;
                of_link.insert(0, Arc::clone(job));
            } else {
                of_link.push(Arc::clone(job));
            }
            if let Some(machine) = machine {
                of_machine.insert(machine, index);
            }
        }
        by_link
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
        // Else nothing was found to signal, and not because all is over: the host can't tell the job's processes.
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
    Ok(SignalReport {
        delivered_via: DeliveredVia::Channel,
        confirmed_dead: false,
        unverified: Some(Unverified::Channel),
    })
}

async fn kill<D: Directory>(
    shared: &Shared<D>,
    job: &Job,
    group: &ProcessGroup,
    reach: Reach,
    (signal, grace): (Signal, Option<Duration>),
) -> Result<SignalReport, SignalError> {
    let script = |shell| kill_script(std::slice::from_ref(group), reach, (signal, grace), shell);
    let answer = ask_about(shared, job, script, grace.unwrap_or_default() + ANSWER_TIMEOUT).await?;
    Ok(SignalReport::new(KillReport::parse(&answer)))
}

/// Ends jobs of one machine in one go, over the connection of one of them. Returns those whose end is worth waiting for.
async fn end_all<D: Directory>(
    shared: Arc<Shared<D>>,
    link: Arc<Link>,
    jobs: Vec<Arc<Job>>,
) -> Vec<Arc<Job>> {
    // A job that has just started may not have told its group yet.
    let told = async {
        for job in &jobs {
            job.wait_for(PGID_TIMEOUT, |log| log.pgid().is_some() || log.outcome().is_some()).await;
        }
    };
    drop(timeout(PGID_TIMEOUT, told).await);
    // Whoever follows is told the end; what still comes is nobody's.
    jobs.iter().for_each(|job| job.let_go());
    let (mut told, mute): (Vec<_>, Vec<_>) = jobs.iter().partition(|job| job.process_group().is_some());
    if !link.answers_after(BRIEF).await {
        tracing::warn!(jobs = jobs.len(), "the host does not answer: its jobs are left as they are");
        return Vec::new();
    }
    let grace = shared.limits.kill_grace();
    while !told.is_empty() {
        let part = told.split_off(told.len().saturating_sub(GROUPS_IN_A_SCRIPT));
        let groups: Vec<ProcessGroup> = part.iter().filter_map(|job| job.process_group()).collect();
        let script = |shell| kill_script(&groups, Reach::Tree, (Signal::TERM, Some(grace)), shell);
        let asked = ask_about(&shared, part[0], script, grace + LAST_ANSWER).await;
        match asked.map(|answer| SignalReport::new(KillReport::parse(&answer))) {
            Ok(SignalReport { confirmed_dead: true, .. }) => {}
            Ok(report) => tracing::warn!(host = part[0].spec.host, ?report, "not every job is verified dead"),
            Err(error) => tracing::warn!(host = part[0].spec.host, %error, "jobs could not be ended"),
        }
    }
    for job in mute {
        let stdin = shared.registry().stdin(&job.id);
        if let Some(stdin) = stdin {
            stdin.channel().signal(Signal::TERM.name()).await.ok();
            stdin.channel().close().await.ok();
        }
    }
    jobs
}
