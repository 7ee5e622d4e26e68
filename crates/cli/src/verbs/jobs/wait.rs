//! `sshjobs wait`: the end of jobs, as our exit code.

use std::collections::BTreeSet;

use tokio::time::Instant;

use super::finish::finish;
use super::pick;
use crate::args::WaitArgs;
use crate::exit::{exit_of, print};
use crate::json::json;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::printable;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Error, JobEntry, WaitMode, WaitRequest};

/// Length of the first wait. After each wait, a note names hosts that are out of reach.
const FIRST_WAIT_MS: i64 = 5_000;
/// Length of each later wait.
const WAIT_MS: i64 = 50_000;

/// Waits until jobs have ended and exits with their code.
pub async fn wait(api: &Api, args: WaitArgs) -> ProgramExit {
    finish(api, async {
        let SelectedJobs { ended, left } = select(api, &args).await?;
        let is_enough = left.is_empty() || (args.any && !ended.is_empty());
        if is_enough {
            return Ok(report_ends(&ended, &args));
        }
        let deadline = args.timeout.map(|limit| Instant::now() + limit);
        let mut call_limit_ms = FIRST_WAIT_MS;
        let mut reported_hosts = BTreeSet::new();
        loop {
            let time_left =
                deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            // The last call waits 0 ms: it only reads the states of the jobs.
            let is_last_call = time_left.is_some_and(|time_left| time_left.is_zero());
            let left_ms = time_left.map_or(call_limit_ms, |time_left| {
                i64::try_from(time_left.as_millis()).unwrap_or(call_limit_ms)
            });
            let reply = api
                .wait(WaitRequest {
                    mode: if args.any {
                        WaitMode::Any
                    } else {
                        WaitMode::All
                    },
                    wait_ms: Some(left_ms.min(call_limit_ms)),
                    ..WaitRequest::new(left.clone())
                })
                .await?;
            if reply.timed_out {
                report_unreachable_hosts(&reply.jobs, &mut reported_hosts);
            }
            if reply.timed_out && !is_last_call {
                call_limit_ms = WAIT_MS;
                continue;
            }
            let jobs = [ended, reply.jobs].concat();
            if !reply.timed_out {
                return Ok(report_ends(&jobs, &args));
            }
            let printed = print_json(&jobs, &args);
            note("the time limit has passed; the jobs continue");
            return Ok(ProgramExit::TIMED_OUT.or(printed));
        }
    })
    .await
}

/// The jobs that a command line selects.
struct SelectedJobs {
    /// Jobs that had ended when the filter was applied. Their exit codes count, too: a script that waits for a label must learn
    /// that one of its jobs failed early.
    ended: Vec<JobEntry>,
    /// Ids of the others.
    left: Vec<String>,
}

async fn select(api: &Api, args: &WaitArgs) -> Result<SelectedJobs, Error> {
    if !args.jobs.is_empty() {
        return Ok(SelectedJobs {
            ended: Vec::new(),
            left: pick::selected(api, &args.jobs, &args.filter, |_| true).await?,
        });
    }
    let jobs = pick::filtered(api, &args.filter).await?;
    if jobs.is_empty() {
        return Err(pick::no_job_passes());
    }
    let (ended, left): (Vec<JobEntry>, Vec<JobEntry>) =
        jobs.into_iter().partition(|job| job.standing.state.is_final());
    Ok(SelectedJobs {
        ended,
        left: left.into_iter().map(|job| job.job_id).collect(),
    })
}

/// Reports how jobs have ended. Returns the code to exit with.
fn report_ends(jobs: &[JobEntry], args: &WaitArgs) -> ProgramExit {
    let mut printed = print_json(jobs, args);
    let ended = jobs.iter().filter(|entry| entry.standing.state.is_final());
    for entry in ended
        .clone()
        .filter(|entry| !args.json && exit_of(entry) == ProgramExit::CONNECTION)
    {
        note(&format!("{}: {}", entry.job_id, entry.standing));
    }
    if args.any && !args.json {
        let ids: Vec<&str> = ended.clone().map(|entry| entry.job_id.as_str()).collect();
        printed = print(&ids.join("\n"));
    }
    // The exit code of a job takes precedence over an error of the output.
    ended.map(exit_of).fold(ProgramExit::SUCCESS, ProgramExit::or).or(printed)
}

fn print_json(jobs: &[JobEntry], args: &WaitArgs) -> ProgramExit {
    if !args.json {
        return ProgramExit::SUCCESS;
    }
    let lines: Vec<String> = jobs.iter().map(json).collect();
    print(&lines.join("\n"))
}

/// Names the hosts of jobs that are out of reach, each once.
fn report_unreachable_hosts(jobs: &[JobEntry], reported: &mut BTreeSet<String>) {
    for job in jobs {
        if job.standing.disconnected_ms.is_some() && reported.insert(job.host.clone()) {
            let host = printable(&job.host);
            note(&format!(
                "{host} is out of reach: its jobs may have ended already"
            ));
        }
    }
}
