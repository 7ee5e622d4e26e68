//! `sshjobs jobs`: the list of jobs.

use std::io::stdout;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::cli::args::JobsArgs;
use crate::cli::exit::print;
use crate::cli::json::json;
use crate::cli::terminal::{GREEN, RED, are_wanted, in_columns, paint};
use crate::cli::{Exit, report};
use crate::jobs::printable;
use crate::remote::Api;
use crate::wire::{Error, JobEntry, JobState, JobsReply, JobsRequest};

/// Lists jobs.
pub async fn jobs(api: &Api, args: JobsArgs) -> Exit {
    let listed = list(api, &args).await;
    let exit = match listed {
        Ok(reply) if args.json => {
            let lines: Vec<String> =
                reply.jobs.iter().map(|entry: &JobEntry| json(entry)).collect();
            if lines.is_empty() {
                Exit::SUCCESS
            } else {
                print(&lines.join("\n"))
            }
        }
        Ok(reply) => print(table(&reply).trim_end()),
        Err(error) => {
            report(&error);
            Exit::of_error(&error)
        }
    };
    api.shutdown().await;
    exit
}

async fn list(api: &Api, args: &JobsArgs) -> Result<JobsReply, Error> {
    let state = match &args.state {
        None => None,
        Some(name) => {
            let known = serde_json::from_value::<JobState>(name.as_str().into());
            Some(known.map_err(|_| {
                let hint =
                    "use starting, running, exited, signaled, lost, closed, refused or timed_out";
                Error::invalid(format!("{name:?} is not a state"), hint)
            })?)
        }
    };
    let limit = Some(i64::from(args.limit));
    let host = args.host.clone();
    let label = args.label.clone();
    let fleet = args.fleet.clone();
    let cached = args.cached;
    api.jobs(JobsRequest {
        host,
        label,
        state,
        fleet,
        limit,
        cached,
    })
    .await
}

const HEAD: [&str; 7] = ["JOB", "HOST", "STATE", "AGE", "LINES", "PROCESS", "COMMAND"];
/// Maximum characters shown of a command.
const SHOWN: usize = 60;

fn table(reply: &JobsReply) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(reply.jobs.iter().map(row));
    let is_coloured = are_wanted(&stdout());
    let colours = [None].into_iter().chain(reply.jobs.iter().map(colour));
    let mut text: String = in_columns(&rows)
        .into_iter()
        .zip(colours)
        .map(|(line, colour): (String, Option<u8>)| match colour {
            Some(colour) => paint(&line, colour, is_coloured) + "\n",
            None => line + "\n",
        })
        .collect();
    let more = reply.total.saturating_sub(reply.jobs.len());
    if more > 0 {
        text.push_str(&format!("and {more} more (-n, --host, --label, --state)\n"));
    }
    text
}

fn row(entry: &JobEntry) -> [String; 7] {
    let one_line = entry.command.replace('\n', " ");
    let shown: String = one_line.chars().take(SHOWN).collect();
    let process = match &entry.owner {
        // An empty name means that no process records the job.
        Some(owner) if owner.is_empty() && entry.standing.state == JobState::Running => {
            "nobody".to_owned()
        }
        Some(owner) if owner.is_empty() => "-".to_owned(),
        Some(owner) => printable(owner),
        None if entry.has_leftovers => "left on host".to_owned(),
        None => "-".to_owned(),
    };
    let label = entry.label.as_ref().map(|label| format!("[{label}] ")).unwrap_or_default();
    [
        printable(&entry.job_id),
        printable(&entry.host),
        standing(entry),
        age(entry.started_at),
        entry.total_lines.to_string(),
        process,
        printable(&format!("{label}{shown}").replace('\n', " ")),
    ]
}

fn standing(entry: &JobEntry) -> String {
    match entry.last_seen_at {
        Some(seen_at) => printable(&format!(
            "{} (last seen {} ago)",
            entry.standing,
            age(seen_at)
        )),
        None => printable(&entry.standing.to_string()),
    }
}

fn colour(entry: &JobEntry) -> Option<u8> {
    match (entry.standing.state, entry.standing.exit_status) {
        (JobState::Running | JobState::Starting, _) => Some(GREEN),
        (JobState::Exited, Some(0)) => None,
        _ => Some(RED),
    }
}

/// The time since `started_at`, in its largest unit.
pub(crate) fn age(started_at: u64) -> String {
    // A member of a fleet that has not been started.
    if started_at == 0 {
        return "-".to_owned();
    }
    let then = UNIX_EPOCH + Duration::from_millis(started_at);
    let seconds = SystemTime::now().duration_since(then).unwrap_or_default().as_secs();
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3600 => format!("{}m", seconds / 60),
        3600..86_400 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}
