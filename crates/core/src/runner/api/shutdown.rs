//! Shutdown: ends jobs on their hosts, waits for the ends, then closes connections and stops
//! tasks. Every step has a time limit.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::runner::Runner;
use crate::hosts::{Asking, Link, Script};
use crate::keeping::FLUSH_TO_END;
use crate::runner::foreign::{end_leftovers_at_last, hand_over_all};
use crate::runner::signal::{
    BRIEF, PGID_TIMEOUT, SignalReport, kill, process_group_told, run_on_machine,
};
use crate::runner::state::RunnerState;
use sshjobs_base::lock::lock;
use sshjobs_job::{
    Caller, Job, Kill, KillReport, LostWhy, MachineId, Outcome, Phase, ProcessGroup, Reach, Signal,
    kill_script,
};

/// Time limit for the ends of killed jobs to be recorded.
const LAST_WORDS: Duration = Duration::from_secs(3);
/// Time limit for a host to report the result for its jobs, in addition to the grace.
const LAST_REPORT: Duration = Duration::from_secs(5);
/// Maximum jobs that one script ends: its text must fit into one argument (128 KiB on Linux).
const GROUPS_IN_A_SCRIPT: usize = 1000;

/// Jobs that can be ended over one connection.
type OfLink = (Arc<Link>, Vec<Arc<Job>>);

/// Time limit for a command that was just sent to start.
const LAST_START: Duration = Duration::from_secs(2);

impl Runner {
    /// In a cluster, hands all hosts over to other replicas, so that their durable jobs continue to
    /// be followed. Then waits for attached jobs to end, at most for `drain`.
    pub async fn hand_over(&self, drain: Duration) {
        hand_over_all(&self.shared, drain).await;
    }

    /// Ends every job that must not outlive this process (TERM, grace, KILL), waits until they have
    /// ended, and closes all connections. Bounded in time.
    pub async fn shutdown(&self) {
        // First: from here on `reserve` refuses new jobs, and launches that wait give up.
        self.shared.stopping.cancel();
        // A command that was just sent becomes a running job, which must be ended as well. All other
        // launches give up.
        let starting = self.shared.registry().starting();
        let launches = starting
            .iter()
            .map(|job| job.wait_for(LAST_START, |log| log.phase().has_started()));
        join_all(launches).await;
        let mut running = self.shared.registry().to_end();
        // Background children of a command that has ended belong to the user and keep running.
        running.retain(|job| !job.has_ended());
        let mut ending = JoinSet::new();
        for (link, jobs) in self.by_link(&running) {
            ending.spawn(end_all(Arc::clone(&self.shared), link, jobs));
        }
        let mut told: Vec<Arc<Job>> = ending.join_all().await.concat();
        // Fleets end with their members.
        told.extend(running.into_iter().filter(|job| job.fleet.is_some()));
        let over = async {
            for job in &told {
                job.over_within(LAST_WORDS).await;
            }
        };
        drop(timeout(LAST_WORDS, over).await);
        // Before the connections are closed: the search uses only hosts that have one.
        end_leftovers_at_last(&self.shared).await;
        self.shared.hosts.disconnect().await;
        // Taken out, because the lock must not be held while the tasks end.
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.shutdown().await;
        // Recorders may have been stopped just before they could note an end.
        let ended = self.shared.registry().ended_and_not_finished();
        for job in ended {
            if let Phase::Ended(outcome) = job.status().phase {
                self.shared.finish(&job, &outcome);
            }
        }
        // The recorders have ended, and no reader may wait for these jobs for ever.
        let left: Vec<Arc<Job>> = self.shared.registry().to_end();
        let lost = Outcome::Lost(LostWhy::ServerRestarted, None);
        for job in &left {
            job.end(lost.clone());
            self.shared.finish(job, &lost);
        }
        if let Some(storing) = &self.shared.storing {
            // The output thread, which is not a task, still stores and shows these ends.
            for job in &left {
                job.over_within(LAST_WORDS).await;
            }
            storing.flush(FLUSH_TO_END).await;
            // Last: others take over what this process still has.
            storing.blocking(|store| store.leave()).await;
        }
    }

    /// Groups jobs by a connection over which they can be ended: their own, or one to the same
    /// machine in the same boot.
    fn by_link(&self, jobs: &[Arc<Job>]) -> Vec<OfLink> {
        let mut by_link: Vec<OfLink> = Vec::new();
        let mut of_machine: HashMap<(Caller, String, MachineId), usize> = HashMap::new();
        for job in jobs {
            let place = self.shared.registry().place(&job.id);
            let Some(link) = place.and_then(|place| place.link.upgrade()) else { continue };
            let machine = link
                .machine()
                .map(|machine| (job.caller.clone(), job.spec.host.clone(), machine));
            // Jobs on one machine share a script, even if each has a connection of its own.
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
                // The first job's connection is used for all.
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

/// Ends the jobs of one machine with one script, over the connection of one of them. Returns the
/// jobs whose end is worth waiting for.
async fn end_all(
    shared: Arc<RunnerState>,
    link: Arc<Link>,
    mut jobs: Vec<Arc<Job>>,
) -> Vec<Arc<Job>> {
    // A job that has just started may not have announced its process group yet.
    let told = async {
        for job in &jobs {
            process_group_told(job, PGID_TIMEOUT).await;
        }
    };
    drop(timeout(PGID_TIMEOUT, told).await);
    // From here on no follower is waited for: output that still arrives has no reader.
    jobs.iter().for_each(|job| job.stop_pacing());
    if !link.answers_after(BRIEF).await {
        tracing::warn!(
            jobs = jobs.len(),
            "the host does not answer: its jobs are left as they are"
        );
        return Vec::new();
    }
    // Some may have ended in the meantime.
    jobs.retain(|job| !job.has_ended());
    let (told, mute): (Vec<_>, Vec<_>) = jobs.iter().partition(|job| job.process_group().is_some());
    // Each of these needs a script that its own user runs.
    let (of_others, mut told): (Vec<_>, Vec<_>) =
        told.into_iter().partition(|job| job.spec.becomes.is_some());
    let grace = shared.limits.kill_grace;
    let order = Kill::new(Signal::TERM, Some(grace));
    let ending = of_others.into_iter().map(|job| {
        let shared = &shared;
        async move {
            (
                job,
                kill(shared, job, Reach::Tree, order, Asking::Nobody).await,
            )
        }
    });
    // The change of the user may take longer than the script itself.
    let ended = timeout(grace + 2 * LAST_REPORT, join_all(ending)).await;
    for (job, ended) in ended.unwrap_or_default() {
        match ended {
            Ok(report) if report.confirmed_dead => {}
            Ok(report) => warn_unverified(job, report),
            Err(error) => {
                tracing::warn!(host = job.spec.host, %error, "a job could not be ended")
            }
        }
    }
    while !told.is_empty() {
        let part = told.split_off(told.len().saturating_sub(GROUPS_IN_A_SCRIPT));
        let order = Kill::new(Signal::TERM, Some(grace));
        for job in &part {
            job.note_sent_signal(order);
        }
        let groups: Vec<ProcessGroup> = part.iter().filter_map(|job| job.process_group()).collect();
        let script = Script::without_input(kill_script(&groups, Reach::Tree, order));
        let asked = run_on_machine(&shared, part[0], script, grace + LAST_REPORT).await;
        match asked.map(|answer| SignalReport::new(KillReport::parse(&answer))) {
            Ok(SignalReport {
                confirmed_dead: true,
                ..
            }) => {}
            Ok(report) => warn_unverified(part[0], report),
            Err(error) => {
                tracing::warn!(host = part[0].spec.host, %error, "jobs could not be ended")
            }
        }
    }
    // The script needs a process group. Jobs without one are signalled on their channels.
    for job in mute {
        let stdin = shared.registry().stdin(&job.id);
        if let Some(stdin) = stdin {
            job.note_sent_signal(Kill::new(Signal::TERM, None));
            stdin.controls().signal(Signal::TERM).await.ok();
            stdin.controls().close().await.ok();
        }
    }
    jobs
}

fn warn_unverified(job: &Job, report: SignalReport) {
    let host = job.spec.host.as_str();
    match report.unverified {
        Some(why) => {
            tracing::warn!(
                host,
                "could not confirm that all processes of ended jobs are gone: {why}"
            )
        }
        None => tracing::warn!(host, "processes of ended jobs are still running"),
    }
}
