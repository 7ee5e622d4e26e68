use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;

use super::Runner;
use super::on_machine::{BRIEF, run_on_machine};
use super::shared::Shared;
use super::signal_tree::{PGID_TIMEOUT, SignalReport, process_group_told};
use crate::hosts::Link;
use crate::job::{
    Caller, Job, KillReport, LostWhy, MachineId, Outcome, ProcessGroup, Reach, Signal, kill_script,
};
use crate::lock::lock;

/// Time limit for the ends of killed jobs to be seen.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// Time limit for a host to report what came of its jobs, beyond the grace.
const LAST_REPORT: Duration = Duration::from_secs(5);
/// Maximum jobs that one script ends: its text must fit into one argument (128 KiB on Linux).
const GROUPS_IN_A_SCRIPT: usize = 1000;

/// Jobs that can be ended over one connection.
type OfLink = (Arc<Link>, Vec<Arc<Job>>);

impl Runner {
    /// Ends every job (TERM, grace, KILL) but those that outlive us, waits until they are over, and closes all connections.
    /// Bounded in time.
    pub async fn shutdown(&self) {
        self.shared.stopping.cancel();
        let running = self.shared.registry().to_end();
        let mut ending = JoinSet::new();
        for (link, jobs) in self.by_link(&running) {
            ending.spawn(end_all(Arc::clone(&self.shared), link, jobs));
        }
        let mut told: Vec<Arc<Job>> = ending.join_all().await.concat();
        // They end with their members.
        told.extend(running.into_iter().filter(|job| job.fleet.is_some()));
        let over = async {
            for job in &told {
                job.over_within(LAST_WORDS).await;
            }
        };
        drop(timeout(LAST_WORDS, over).await);
        self.shared.hosts.disconnect().await;
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.shutdown().await;
        // Nobody records these any more, and nobody may wait for them for ever.
        let left: Vec<Arc<Job>> = self.shared.registry().to_end();
        left.iter().for_each(|job| job.end(Outcome::Lost(LostWhy::ServerRestarted, None)));
        if let Some(storing) = &self.shared.storing {
            for job in &left {
                job.over_within(LAST_WORDS).await;
            }
            storing.flush().await;
        }
    }

    /// The jobs by the connections over which each can be ended: its own, or one to the same machine in the same boot.
    fn by_link(&self, jobs: &[Arc<Job>]) -> Vec<OfLink> {
        let mut by_link: Vec<OfLink> = Vec::new();
        let mut of_machine: HashMap<(Caller, String, MachineId), usize> = HashMap::new();
        for job in jobs {
            let place = self.shared.registry().place(&job.id);
            let Some(link) = place.and_then(|place| place.link.upgrade()) else { continue };
            let machine =
                link.machine.clone().map(|machine| (job.caller.clone(), job.spec.host.clone(), machine));
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

/// Ends jobs of one machine in one go, over the connection of one of them. Returns those whose end is worth waiting for.
async fn end_all(shared: Arc<Shared>, link: Arc<Link>, jobs: Vec<Arc<Job>>) -> Vec<Arc<Job>> {
    // A job that has just started may not have told its group yet.
    let told = async {
        for job in &jobs {
            process_group_told(job, PGID_TIMEOUT).await;
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
        let asked = run_on_machine(&shared, part[0], script, grace + LAST_REPORT).await;
        match asked.map(|answer| SignalReport::new(KillReport::parse(&answer))) {
            Ok(SignalReport { confirmed_dead: true, .. }) => {}
            Ok(report) => tracing::warn!(host = part[0].spec.host, ?report, "not every job is verified dead"),
            Err(error) => tracing::warn!(host = part[0].spec.host, %error, "jobs could not be ended"),
        }
    }
    for job in mute {
        let stdin = shared.registry().stdin(&job.id);
        if let Some(stdin) = stdin {
            stdin.controls().signal(Signal::TERM).await.ok();
            stdin.controls().close().await.ok();
        }
    }
    jobs
}
