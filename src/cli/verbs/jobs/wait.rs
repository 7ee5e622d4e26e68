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

/// Length of one wait, before the next.
const WAIT_MS: i64 = 50_000;

/// Waits until jobs have ended and exits with their code.
pub async fn wait(api: &Api, args: WaitArgs) -> Exit {
    finish(api, async {
        let runs = |entry: &JobEntry| !entry.standing.state.is_final();
        let ids = pick::selected(api, &args.jobs, &args.filter, runs).await?;
        if ids.is_empty() {
            note("no job that runs passes this filter");
            return Ok(Exit::SUCCESS);
        }
        let deadline = args.timeout.map(|limit| Instant::now() + limit);
        loop {
            let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
            let left_ms = left.map_or(WAIT_MS, |left| {
                i64::try_from(left.as_millis()).unwrap_or(WAIT_MS)
            });
            let reply = api
                .wait(WaitRequest {
                    job_ids: ids.clone(),
                    mode: if args.any {
                        WaitMode::Any
                    } else {
                        WaitMode::All
                    },
                    wait_ms: Some(left_ms.min(WAIT_MS)),
                    last_lines: 0,
                    last_lines_of: LastLinesOf::Failed,
                })
                .await?;
            let is_late = left.is_some_and(|left| left.is_zero());
            // `is_late` is from before the call: the last call begins after the limit.
            if reply.timed_out && !is_late {
                continue;
            }
            if args.json {
                let lines: Vec<String> = reply.jobs.iter().map(json).collect();
                print(&lines.join("\n"));
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
                for entry in ended.clone() {
                    print(&entry.job_id);
                }
            }
            let mut exits = ended.map(exit_of).filter(|exit| *exit != Exit::SUCCESS);
            return Ok(exits.next().unwrap_or(Exit::SUCCESS));
        }
    })
    .await
}
