use std::time::Duration;

use super::SignalError;
use super::on_machine::run_on_machine;
use super::shared::Shared;
use crate::job::{Controls, Job, KillReport, Left, Reach, Signal, kill_script};

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
    /// The signal was sent as a channel request, which has no reply (RFC 4254 §6.9).
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
    pub(super) fn new(report: Option<KillReport>) -> Self {
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

/// Time limit for the host to report what came of a signal, beyond the grace.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for the host to tell the process group of a job that has just started.
pub(super) const PGID_TIMEOUT: Duration = Duration::from_secs(2);

/// Signals the tree of a running job: by its process group where the host has told it, else by the channel.
pub(super) async fn end_tree(
    shared: &Shared,
    job: &Job,
    (signal, grace): (Signal, Option<Duration>),
    controls: &dyn Controls,
) -> Result<SignalReport, SignalError> {
    process_group_told(job, PGID_TIMEOUT).await;
    if job.process_group().is_some() {
        let report = kill(shared, job, Reach::Tree, (signal, grace)).await?;
        // Else nothing was found to signal, and not because all is over: the host can't tell the job's processes.
        if report.delivered_via != DeliveredVia::Nothing || report.confirmed_dead {
            return Ok(report);
        }
    }
    if controls.outlives_us() {
        // A durable job has no channel to fall back on: an unreachable host is an error.
        return kill(shared, job, Reach::Marked, (signal, grace)).await;
    }
    for signal in [Some(signal), grace.map(|_| Signal::KILL)].into_iter().flatten() {
        // Servers need not answer, nor obey; the job's end will tell.
        controls.signal(signal).await.ok();
        if let Some(grace) = grace {
            job.over_within(grace).await;
        }
    }
    Ok(SignalReport {
        delivered_via: DeliveredVia::Channel,
        confirmed_dead: false,
        unverified: Some(Unverified::Channel),
    })
}

/// Runs the script that signals a job's processes, on the job's machine.
pub(super) async fn kill(
    shared: &Shared,
    job: &Job,
    reach: Reach,
    (signal, grace): (Signal, Option<Duration>),
) -> Result<SignalReport, SignalError> {
    let by_mark = || (reach == Reach::Marked).then(|| job.marked());
    let group = job.process_group().or_else(by_mark).ok_or(SignalError::JobEnded)?;
    let script = |shell| kill_script(std::slice::from_ref(&group), reach, (signal, grace), shell);
    let answer = run_on_machine(shared, job, script, grace.unwrap_or_default() + REPORT_TIMEOUT).await?;
    Ok(SignalReport::new(KillReport::parse(&answer)))
}

/// Waits until the host has told a job's process group, or the job is over, for as long as `patience`.
pub(super) async fn process_group_told(job: &Job, patience: Duration) {
    job.wait_for(patience, |log| log.pgid().is_some() || log.outcome().is_some()).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_dead_only_when_its_host_has_looked_and_found_nothing() {
        let report = |delivered, left| SignalReport::new(Some(KillReport { delivered, left }));
        for (left, unverified) in [
            (Left::Nothing, None),
            (Left::Alive, None),
            (Left::Unmarked, Some(Unverified::Unmarked)),
            (Left::Hidden, Some(Unverified::Hidden)),
            (Left::Unseen, Some(Unverified::Unseen)),
        ] {
            let report = report(true, left);
            assert_eq!((report.confirmed_dead, report.unverified), (left == Left::Nothing, unverified));
            assert_eq!(report.delivered_via, DeliveredVia::ProcessGroup);
        }
        assert_eq!(report(false, Left::Nothing).delivered_via, DeliveredVia::Nothing);
        let silent = SignalReport::new(None);
        assert_eq!((silent.confirmed_dead, silent.unverified), (false, Some(Unverified::NoReport)));
    }
}
