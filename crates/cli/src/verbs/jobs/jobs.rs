//! `sshjobs jobs`: the list of jobs.

use std::cmp::Reverse;
use std::io::{IsTerminal, stdout};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::sleep;

use super::finish::finish;
use super::notifications::notifications;
use super::pick;
use crate::ProgramExit;
use crate::args::{FilterArgs, JobsArgs, SortBy};
use crate::exit::{print, write_out};
use crate::json::json;
use crate::terminal::{GREEN, RED, colours_are_wanted, in_columns, paint, terminal_rows};
use sshjobs_core::jobs::printable;
use sshjobs_wire::in_largest_unit;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Error, JobEntry, JobState, JobsReply, JobsRequest};

/// Lists jobs.
pub async fn jobs(api: &Api, args: JobsArgs) -> ProgramExit {
    finish(api, async {
        if args.notify {
            return notifications(api, args.json).await;
        }
        let Some(interval) = args.watch else {
            return Ok(show(&list(api, &args).await?, &args));
        };
        loop {
            let mut reply = list(api, &args).await?;
            if let Some(rows) = terminal_rows() {
                // The head, a line for the others, and one for the cursor.
                reply.jobs.truncate(rows.saturating_sub(3));
            }
            let cleared = if stdout().is_terminal() {
                // Without a line end, so that the list starts in the first row.
                write_out(CLEAR.as_bytes())
            } else {
                ProgramExit::SUCCESS
            };
            match cleared.or(show(&reply, &args)) {
                ProgramExit::SUCCESS => {}
                exit => return Ok(exit),
            }
            sleep(interval).await;
        }
    })
    .await
}

/// Cursor to the first column and row, and erase all (CUP and ED, ECMA-48).
const CLEAR: &str = "\x1b[H\x1b[2J";

fn show(reply: &JobsReply, args: &JobsArgs) -> ProgramExit {
    if !args.json {
        return print(table(reply).trim_end());
    }
    let lines: Vec<String> = reply.jobs.iter().map(|entry: &JobEntry| json(entry)).collect();
    if lines.is_empty() {
        ProgramExit::SUCCESS
    } else {
        print(&lines.join("\n"))
    }
}

/// Maximum jobs of a list.
const MOST_JOBS: usize = 10_000;

async fn list(api: &Api, args: &JobsArgs) -> Result<JobsReply, Error> {
    let limit = if args.all {
        MOST_JOBS
    } else {
        args.limit as usize
    };
    // Only the newest are asked for, unless all are needed to select or sort them here.
    let is_selected_here =
        args.caller.is_some() || args.older.is_some() || args.sort != SortBy::Age;
    let asked = if is_selected_here { MOST_JOBS } else { limit };
    let mut reply = api
        .jobs(JobsRequest {
            host: args.host.clone(),
            label: args.label.clone(),
            state: args.state,
            fleet: args.fleet.clone(),
            limit: Some(i64::try_from(asked).unwrap_or(i64::MAX)),
            cached: args.cached,
            ..JobsRequest::default()
        })
        .await?;
    if is_selected_here {
        let filter = FilterArgs {
            caller: args.caller.clone(),
            older: args.older,
            ..FilterArgs::default()
        };
        reply.jobs.retain(|entry| pick::passes(entry, &filter));
        reply.total = reply.jobs.len();
        sort(&mut reply.jobs, args.sort);
        reply.jobs.truncate(limit);
    }
    Ok(reply)
}

/// Sorts jobs, which come newest first. The sort is stable: equal ones stay in that order.
fn sort(jobs: &mut [JobEntry], by: SortBy) {
    match by {
        SortBy::Age => {}
        SortBy::Host => jobs.sort_by(|one, other| one.host.cmp(&other.host)),
        SortBy::State => jobs.sort_by_key(|job| job.standing.state.as_str()),
        SortBy::Duration => jobs.sort_by_key(|job| Reverse(duration_of(job))),
        SortBy::Lines => jobs.sort_by_key(|job| Reverse(job.total_lines)),
    }
}

/// How long a job ran, or has been running.
pub(crate) fn duration_of(entry: &JobEntry) -> Duration {
    match entry.ended_at {
        // A member of a fleet that was not started.
        _ if entry.started_at == 0 => Duration::ZERO,
        Some(ended_at) => Duration::from_millis(ended_at.saturating_sub(entry.started_at)),
        None if entry.standing.state.is_final() => Duration::ZERO,
        None => pick::age_of(entry),
    }
}

const HEAD: [&str; 9] = [
    "JOB", "HOST", "STATE", "EXIT", "AGE", "TIME", "LINES", "WHO", "COMMAND",
];
/// Maximum characters shown of a command.
const SHOWN: usize = 60;

fn table(reply: &JobsReply) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(reply.jobs.iter().map(row));
    let is_coloured = colours_are_wanted(&stdout());
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
        text.push_str(&format!(
            "and {more} more (-n, -a, --host, --label, --state)\n"
        ));
    }
    text
}

fn row(entry: &JobEntry) -> [String; 9] {
    let one_line = entry.command.replace('\n', " ");
    let shown: String = one_line.chars().take(SHOWN).collect();
    let label = entry.label.as_ref().map(|label| format!("[{label}] ")).unwrap_or_default();
    let user = entry.becomes.as_ref().map(|user| format!("as {user}: ")).unwrap_or_default();
    [
        printable(&entry.job_id),
        printable(&entry.host),
        standing(entry),
        exit_text(entry),
        age(entry.started_at),
        in_largest_unit(duration_of(entry)),
        entry.total_lines.to_string(),
        who(entry),
        printable(&format!("{label}{user}{shown}").replace('\n', " ")),
    ]
}

/// The caller of a job or, for one's own jobs, the process that records it.
fn who(entry: &JobEntry) -> String {
    if let Some(caller) = &entry.caller {
        return printable(caller);
    }
    match &entry.owner {
        // An empty name means that no process records the job.
        Some(owner) if owner.is_empty() && entry.standing.state == JobState::Running => {
            "nobody".to_owned()
        }
        Some(owner) if !owner.is_empty() => printable(owner),
        Some(_) => "-".to_owned(),
        None if entry.has_leftovers => "left on host".to_owned(),
        None => "-".to_owned(),
    }
}

/// The exit status or the signal.
pub(crate) fn exit_text(entry: &JobEntry) -> String {
    match (entry.standing.exit_status, &entry.standing.exit_signal) {
        (Some(status), _) => status.to_string(),
        (None, Some(signal)) => format!("SIG{}", printable(signal)),
        (None, None) => "-".to_owned(),
    }
}

/// The name of the state. A member of a fleet that was not started has the state starting on the wire.
pub(crate) fn state_of(entry: &JobEntry) -> &'static str {
    let state = entry.standing.state;
    if state == JobState::Starting && entry.started_at == 0 {
        "not started"
    } else {
        state.as_str()
    }
}

/// The state, without the exit status, which has its own column.
fn standing(entry: &JobEntry) -> String {
    let state = state_of(entry);
    if entry.awaiting_input {
        return format!("{state}, asks");
    }
    let reason = entry.standing.reason.as_ref();
    let state = reason.map_or_else(|| state.to_owned(), |reason| format!("{state} ({reason})"));
    match entry.last_seen_at {
        Some(seen_at) => printable(&format!("{state} (last seen {} ago)", age(seen_at))),
        None => printable(&state),
    }
}

fn colour(entry: &JobEntry) -> Option<u8> {
    match (entry.standing.state, entry.standing.exit_status) {
        (JobState::Running | JobState::Starting | JobState::Queued, _) => Some(GREEN),
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
    in_largest_unit(SystemTime::now().duration_since(then).unwrap_or_default())
}
