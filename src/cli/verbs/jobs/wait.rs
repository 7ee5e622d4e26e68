//! `sshjobs wait`: the end of jobs, as our exit code.

use tokio::time::Instant;

use super::finish::{finish, warn_if_unreachable};
use super::pick;
use crate::cli::args::WaitArgs;
use crate::cli::exit::{exit_of, print};
use crate::cli::json::json;
use crate::cli::{Exit, note};
use crate::remote::Api;
use crate::wire::{JobEntry, LastLinesOf, WaitMode, WaitRequest};

/// Length of the first wait. After it, a note names the hosts that are out of reach.
const FIRST_WAIT_MS: i64 = 5_000;
/// Length of each later wait.
const WAIT_MS: i64 = 50_000;

/// Waits until jobs have ended and exits with their code.
pub async fn wait(api: &Api, args: WaitArgs) -> Exit {
    finish(api, async {
        let ids = pick::selected(api, &args.jobs, &args.filter, pick::runs).await?;
        if ids.is_empty() {
            note("no job that runs passes this filter");
            return Ok(Exit::SUCCESS);
        }
        let deadline = args.timeout.map(|limit| Instant::now() + limit);
        let mut is_first = true;
        loop {
            let longest_ms = if is_first { FIRST_WAIT_MS } else { WAIT_MS };
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left_ms = left.map_or(longest_ms, |left| {
                i64::try_from(left.as_millis()).unwrap_or(longest_ms)
            });
            let reply = api
                .wait(WaitRequest {
                    job_ids: ids.clone(),
                    mode: if args.any {
                        WaitMode::Any
                    } else {
                        WaitMode::All
                    },
                    wait_ms: Some(left_ms.min(longest_ms)),
                    last_lines: 0,
                    last_lines_of: LastLinesOf::Failed,
                })
                .await?;
            let is_late = left.is_some_and(|left| left.is_zero());
            // `is_late` is from before the call: the last call begins after the limit.
            if reply.timed_out && !is_late {
                if is_first {
                    warn_of_unreachable(api, &reply.jobs).await;
                }
                is_first = false;
                continue;
            }
            let mut printed = Exit::SUCCESS;
            if args.json {
                let lines: Vec<String> = reply.jobs.iter().map(json).collect();
                printed = print(&lines.join("\n"));
            }
            if reply.timed_out {
                note("the time limit has passed; the jobs continue");
                for id in &ids {
                    warn_if_unreachable(api, id).await;
                }
                return Ok(Exit::TIMED_OUT);
            }
            let ended = reply.jobs.iter().filter(|entry| entry.standing.state.is_final());
            for entry in
                ended.clone().filter(|entry| !args.json && exit_of(entry) == Exit::CONNECTION)
            {
                note(&format!("{}: {}", entry.job_id, entry.standing));
            }
            if args.any && !args.json {
                let ids: Vec<&str> = ended.clone().map(|entry| entry.job_id.as_str()).collect();
                printed = print(&ids.join("\n"));
            }
            // The exit code of a job takes precedence over an error of the output.
            return Ok(ended.map(exit_of).fold(Exit::SUCCESS, Exit::or).or(printed));
        }
    })
    .await
}

async fn warn_of_unreachable(api: &Api, jobs: &[JobEntry]) {
    for job in jobs {
        if job.standing.disconnected_ms.is_some() {
            warn_if_unreachable(api, &job.job_id).await;
        }
    }
}
