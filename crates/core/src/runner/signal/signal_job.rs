//! Signals all processes of a job and reports what is known of the result.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::on_machine::{OtherUser, run_on_machine, run_on_machine_as};
use crate::hosts::{Asking, Script};
use crate::runner::state::{RunnerState, SignalError, chain};
use sshjobs_job::{
    Controls, Job, Kill, KillReport, Left, Outcome, Phase, Reach, Signal, kill_script,
};

/// How a signal was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DeliveredVia {
    /// To the job's process group and to processes that left it, over a second channel.
    ProcessGroup,
    /// As a request on the job's own channel, whose delivery the server does not confirm.
    Channel,
    /// Not delivered: the job has no process left.
    Nothing,
}

/// Result of a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalReport {
    /// How the signal was delivered.
    pub delivered_via: DeliveredVia,
    /// The host verified that no process of the job is left.
    pub confirmed_dead: bool,
    /// Why `confirmed_dead` is unknown, if it is.
    pub unverified: Option<Unverified>,
}

/// Why it is unknown whether a process of a job is left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
pub enum Unverified {
    /// The signal was sent as a channel request, which has no reply (RFC 4254 §6.9).
    #[error("the server was asked to signal the command, but the request has no reply")]
    Channel,
    /// The job's process group has members that don't carry its mark; they were left alone.
    #[error(
        "processes of the job's group do not carry its mark and may not be its own; \
         they were not signalled"
    )]
    Unmarked,
    /// The account can't see all processes of the host.
    #[error(
        "no process of the job is left to see, but this account does not see all processes of the host"
    )]
    Hidden,
    /// The host does not list its processes.
    #[error("the host does not show its processes (it has no /proc, or no awk)")]
    Unseen,
    /// The host did not let the account signal the processes of the user as whom the job runs.
    #[error(
        "the job runs as another user, and the host did not change to that user to signal its \
         processes"
    )]
    OtherUser,
    /// The host's answer was not that of the script.
    #[error("the host did not run the script that looks at its processes")]
    NoReport,
    /// The process that owns the job received the signal, and has not reported its result in time.
    #[error("the process that owns the job did not report the result in time")]
    OwnerLate,
    /// Another process runs the fleet, and has not answered.
    #[error("the process that runs the fleet does not answer, and may start further members")]
    FleetOwnerSilent,
}

impl SignalReport {
    pub(crate) fn new(report: Option<KillReport>) -> Self {
        let Some(KillReport { delivered, left }) = report else {
            let delivered_via = DeliveredVia::Nothing;
            return Self {
                delivered_via,
                confirmed_dead: false,
                unverified: Some(Unverified::NoReport),
            };
        };
        let unverified = match left {
            Left::Nothing | Left::Alive => None,
            Left::Unmarked => Some(Unverified::Unmarked),
            Left::Hidden => Some(Unverified::Hidden),
            Left::Unseen => Some(Unverified::Unseen),
        };
        let delivered_via = if delivered {
            DeliveredVia::ProcessGroup
        } else {
            DeliveredVia::Nothing
        };
        Self {
            delivered_via,
            confirmed_dead: left == Left::Nothing,
            unverified,
        }
    }

    fn has_reached_a_process(&self) -> bool {
        self.delivered_via != DeliveredVia::Nothing
    }

    /// Whether the host has verified that there was no process to signal.
    pub(crate) fn found_nothing(&self) -> bool {
        self.delivered_via == DeliveredVia::Nothing && self.confirmed_dead
    }

    /// The host did not change to the user as whom the job runs.
    fn of_other_user() -> Self {
        Self {
            delivered_via: DeliveredVia::Nothing,
            confirmed_dead: false,
            unverified: Some(Unverified::OtherUser),
        }
    }

    /// The owner of the job has the signal, but its report is late.
    pub(crate) fn of_late_owner() -> Self {
        Self {
            delivered_via: DeliveredVia::Channel,
            confirmed_dead: false,
            unverified: Some(Unverified::OwnerLate),
        }
    }
}

/// Time limit for the host to report the result of a signal, in addition to the grace.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit for a cancelled start to end.
const ABANDONED: Duration = Duration::from_secs(3);
/// Time limit for a job that has just started to announce its process group.
pub(crate) const PGID_TIMEOUT: Duration = Duration::from_secs(2);

/// Signals all processes of a running job: by its process group if that is known, otherwise by the
/// channel.
pub(crate) async fn end_tree(
    shared: &RunnerState,
    job: &Job,
    order: Kill,
    controls: &dyn Controls,
    asking: Asking<'static>,
) -> Result<SignalReport, SignalError> {
    process_group_told(job, PGID_TIMEOUT).await;
    if job.process_group().is_some() {
        let report = kill(shared, job, Reach::Tree, order, asking).await?;
        // Nothing was signalled although something may run, because the host can't identify the
        // job's processes: the channel is tried. Not for another user, whose processes no server
        // signals.
        if report.delivered_via != DeliveredVia::Nothing
            || report.confirmed_dead
            || report.unverified == Some(Unverified::OtherUser)
        {
            return Ok(report);
        }
    }
    if controls.outlives_us() {
        // A durable job has no channel to fall back on, so an unreachable host is an error.
        return kill(shared, job, Reach::Marked, order, asking).await;
    }

    job.note_sent_signal(order);
    // Servers need not answer or obey. The job's end will show it.
    controls.signal(order.signal).await.ok();
    if let Some(grace) = order.grace {
        job.over_within(grace).await;
        controls.signal(Signal::KILL).await.ok();
        job.over_within(grace).await;
    }
    Ok(SignalReport {
        delivered_via: DeliveredVia::Channel,
        confirmed_dead: false,
        unverified: Some(Unverified::Channel),
    })
}

/// Signals a job's processes by a script on the job's machine, and notes that with the job.
pub(crate) async fn kill(
    shared: &RunnerState,
    job: &Job,
    reach: Reach,
    order: Kill,
    asking: Asking<'static>,
) -> Result<SignalReport, SignalError> {
    // First: the end may be reported before the answer of the script.
    let note = job.note_sent_signal(order);
    let report = run_kill_script(shared, job, reach, order, asking).await;
    let is_delivered = report.as_ref().is_ok_and(SignalReport::has_reached_a_process);
    if !is_delivered {
        job.take_back_signal(note);
    }
    report
}

async fn run_kill_script(
    shared: &RunnerState,
    job: &Job,
    reach: Reach,
    order: Kill,
    asking: Asking<'static>,
) -> Result<SignalReport, SignalError> {
    let (group, reach) = match job.process_group() {
        Some(group) => (group, reach),
        // The mark alone finds the processes of the job that have not removed it.
        None => (job.marked(), Reach::Marked),
    };
    let script = kill_script(std::slice::from_ref(&group), reach, order);
    let limit = order.grace.unwrap_or_default() + REPORT_TIMEOUT;
    let Some(becomes) = &job.spec.becomes else {
        let answer = run_on_machine(shared, job, Script::without_input(script), limit).await?;
        return Ok(SignalReport::new(KillReport::parse(&answer)));
    };

    let user = OtherUser { becomes, asking };
    let by_user = run_on_machine_as(shared, job, user, script.clone(), limit).await;
    let by_user = match by_user {
        Ok(answer) => SignalReport::new(KillReport::parse(&answer)),
        Err(SignalError::Become(error)) => {
            tracing::warn!(job = %job.id, error = %chain(&*error), "its processes could not be signalled");
            // Nor must the account end the program that changed the user: the job would look
            // ended, and its processes would run on.
            return Ok(SignalReport::of_other_user());
        }
        Err(error) => return Err(error),
    };
    if by_user.confirmed_dead && becomes.is_root() {
        return Ok(by_user);
    }
    // The login shell belongs to the account, and another user than root can't signal it, so the
    // account's own script looks for it.
    let answer = run_on_machine(shared, job, Script::without_input(script), limit).await?;
    let by_account = SignalReport::new(KillReport::parse(&answer));
    merged(vec![Ok(by_user), Ok(by_account)])
}

/// Cancels the start of a job of this process. `None` if its command had just been sent: it can be
/// signalled then.
pub(crate) async fn cancel_start(shared: &RunnerState, job: &Job) -> Option<SignalReport> {
    shared.registry().abandon(&job.id);
    let status = job.wait_for(ABANDONED, |log| log.phase().has_started()).await;
    let (confirmed_dead, unverified) = match status.phase {
        Phase::Ended(Outcome::NotStarted(_)) => (true, None),
        // The launch is in a step that it does not interrupt, such as a request for a terminal.
        Phase::Queued | Phase::Starting => (false, Some(Unverified::NoReport)),
        Phase::Running | Phase::Ended(_) => return None,
    };
    Some(SignalReport {
        delivered_via: DeliveredVia::Nothing,
        confirmed_dead,
        unverified,
    })
}

/// Waits until a job has announced its process group or has ended, at most for `patience`.
pub(crate) async fn process_group_told(job: &Job, patience: Duration) {
    job.wait_for(patience, |log| {
        log.pgid().is_some() || log.outcome().is_some()
    })
    .await;
}

/// Maximum members of a fleet that are signalled at the same time.
pub(crate) const MEMBERS_AT_A_TIME: usize = 64;

/// Merges the members' reports. The fleet is confirmed dead when every member is.
pub(crate) fn merged(
    reports: Vec<Result<SignalReport, SignalError>>,
) -> Result<SignalReport, SignalError> {
    let nothing = SignalReport {
        delivered_via: DeliveredVia::Nothing,
        confirmed_dead: true,
        unverified: None,
    };
    let mut merged = nothing;
    let mut reached = 0;
    let mut failed = None;
    for report in reports {
        match report {
            Ok(report) => {
                reached += 1;
                if report.delivered_via != DeliveredVia::Nothing {
                    merged.delivered_via = report.delivered_via;
                }
                merged.confirmed_dead &= report.confirmed_dead;
                merged.unverified = merged.unverified.or(report.unverified);
            }
            // A member that has ended since the list was made counts as dead.
            Err(SignalError::JobEnded) => {}
            Err(error) => {
                merged.confirmed_dead = false;
                failed.get_or_insert(error);
            }
        }
    }
    match failed {
        Some(error) if reached == 0 => Err(error),
        _ => Ok(merged),
    }
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
            assert_eq!(
                (report.confirmed_dead, report.unverified),
                (left == Left::Nothing, unverified)
            );
            assert_eq!(report.delivered_via, DeliveredVia::ProcessGroup);
        }
        assert_eq!(
            report(false, Left::Nothing).delivered_via,
            DeliveredVia::Nothing
        );
        let silent = SignalReport::new(None);
        assert_eq!(
            (silent.confirmed_dead, silent.unverified),
            (false, Some(Unverified::NoReport))
        );
    }
}
