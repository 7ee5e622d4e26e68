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
use crate::terminal::{
    GREEN, RED, YELLOW, colours_are_wanted, fit_uncut, in_columns, paint, terminal_rows,
    terminal_width,
};
use sshjobs_core::jobs::printable;
use sshjobs_wire::in_largest_unit;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{Error, JobCounts, JobEntry, JobKind, JobState, JobsReply, JobsRequest};

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
    let order = args.sort.unwrap_or(if args.json {
        SortBy::Age
    } else {
        SortBy::Attention
    });
    let is_ordered_by_server = matches!(order, SortBy::Age | SortBy::Attention);
    // Only the first jobs are asked for, unless all are needed to select or sort them here.
    let is_selected_here = args.caller.is_some() || args.older.is_some();
    let asked = if is_selected_here || !is_ordered_by_server {
        MOST_JOBS
    } else {
        limit
    };
    let request = JobsRequest {
        host: args.host.clone(),
        label: args.label.clone(),
        state: args.state,
        fleet: args.fleet.clone(),
        limit: Some(i64::try_from(asked).unwrap_or(i64::MAX)),
        cached: args.cached,
        running_first: order == SortBy::Attention,
        text: args.grep.clone(),
        only: match (args.failed, args.waiting) {
            (true, _) => Some(JobKind::Failed),
            (_, true) => Some(JobKind::Waiting),
            _ => None,
        },
        counts: !args.json,
        ..JobsRequest::default()
    };
    let mut reply = match api.jobs(request.clone()).await {
        // A server of an earlier version knows no counts.
        Err(error) if request.counts && error.message.contains("unknown field `counts`") => {
            let without_counts = JobsRequest {
                counts: false,
                ..request
            };
            api.jobs(without_counts).await?
        }
        reply => reply?,
    };
    if is_selected_here {
        let filter = FilterArgs {
            caller: args.caller.clone(),
            older: args.older,
            ..FilterArgs::default()
        };
        reply.jobs.retain(|entry| pick::passes(entry, &filter));
        reply.total = reply.jobs.len();
        let kinds: Vec<JobKind> = reply.jobs.iter().map(JobEntry::kind).collect();
        reply.counts = reply.counts.map(|_| JobCounts::of(&kinds));
    }
    sort(&mut reply.jobs, order);
    reply.jobs.truncate(limit);
    Ok(reply)
}

/// Sorts jobs, which come newest first, or as they need attention. The sort is stable: equal ones stay in that order.
fn sort(jobs: &mut [JobEntry], by: SortBy) {
    match by {
        SortBy::Age | SortBy::Attention => {}
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

/// A column of the list.
struct ListColumn {
    name: &'static str,
    text: fn(&JobEntry) -> String,
}

const WHO: &str = "WHO";
/// The columns. The first one is never cut, and the last one has the remaining width.
const COLUMNS: [ListColumn; 8] = [
    ListColumn {
        name: "JOB",
        text: |entry| printable(&entry.job_id),
    },
    ListColumn {
        name: "HOST",
        text: |entry| printable(&entry.host),
    },
    ListColumn {
        name: "STATE",
        text: state_with_last_seen,
    },
    ListColumn {
        name: "AGE",
        text: |entry| age(entry.started_at),
    },
    ListColumn {
        name: "TIME",
        text: |entry| in_largest_unit(duration_of(entry)),
    },
    ListColumn {
        name: "LINES",
        text: |entry| entry.total_lines.to_string(),
    },
    ListColumn {
        name: WHO,
        text: who,
    },
    ListColumn {
        name: "COMMAND",
        text: command_of,
    },
];
/// Columns that are left out, in this order, to make room for the command on a narrow terminal.
const LEFT_OUT: [&str; 5] = [WHO, "LINES", "AGE", "TIME", "HOST"];
/// Minimum width of the command before other columns are left out.
const ROOM_FOR_COMMAND: usize = 30;

fn table(reply: &JobsReply) -> String {
    let rows = rows(&reply.jobs);
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
    text += &counts_in_words(reply);
    text
}

/// The head and the jobs, with the columns for which there is room.
fn rows(jobs: &[JobEntry]) -> Vec<Vec<String>> {
    let is_own = |entry: &JobEntry| entry.caller.is_none();
    let first = jobs.first().map(who);
    let has_one_caller = jobs.iter().all(|entry| is_own(entry) && Some(who(entry)) == first);
    let mut columns: Vec<&ListColumn> =
        COLUMNS.iter().filter(|column| column.name != WHO || !has_one_caller).collect();
    let mut rows = rows_with(&columns, jobs);
    let Some(width) = terminal_width() else { return rows };
    for name in LEFT_OUT {
        if fit_uncut(&rows, width, ROOM_FOR_COMMAND) {
            break;
        }
        columns.retain(|column| column.name != name);
        rows = rows_with(&columns, jobs);
    }
    rows
}

fn rows_with(columns: &[&ListColumn], jobs: &[JobEntry]) -> Vec<Vec<String>> {
    let head = columns.iter().map(|column| column.name.to_owned()).collect();
    let row_of = |job| columns.iter().map(|column| (column.text)(job)).collect();
    std::iter::once(head).chain(jobs.iter().map(row_of)).collect()
}

/// The last line: `1 waiting for input, 2 running, 116 in all; 86 more are not shown (…)`.
fn counts_in_words(reply: &JobsReply) -> String {
    let Some(counts) = reply.counts.filter(|counts| counts.all > 0) else {
        return String::new();
    };
    let kinds = [
        (counts.waiting, "waiting for input"),
        (counts.running, "running"),
        (counts.queued, "queued"),
        (counts.failed, "failed"),
    ];
    let mut parts: Vec<String> = kinds
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, kind)| format!("{count} {kind}"))
        .collect();
    parts.push(format!("{} in all", counts.all));
    let more = reply.total.saturating_sub(reply.jobs.len());
    let hint = if more > 0 {
        format!("; {more} more are not shown (-n, -a, --failed, --grep)")
    } else {
        String::new()
    };
    format!("{}{hint}\n", parts.join(", "))
}

/// The label, the other user and the command, in one line. For a job that was not started, first the reason.
pub(crate) fn command_of(entry: &JobEntry) -> String {
    let was_refused =
        entry.standing.state == JobState::Refused || entry.kind() == JobKind::NotStarted;
    let reason = match &entry.standing.reason {
        Some(reason) if was_refused => format!("({reason}) "),
        Some(_) | None => String::new(),
    };
    let label = entry.label.as_ref().map(|label| format!("[{label}] ")).unwrap_or_default();
    let user = entry.becomes.as_ref().map(|user| format!("as {user}: ")).unwrap_or_default();
    printable(&format!("{reason}{label}{user}{}", entry.command).replace('\n', " "))
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
        Some(owner) if !owner.is_empty() => short_owner(owner),
        Some(_) => "-".to_owned(),
        None if entry.has_leftovers => "left on host".to_owned(),
        None => "-".to_owned(),
    }
}

/// A process as the store describes it, without the words that a narrow column has no room for: `serve 4711` for
/// `process 4711 (sshjobs serve)`.
fn short_owner(owner: &str) -> String {
    let Some((pid, program)) = owner
        .strip_prefix("process ")
        .map(|rest| rest.split_once(' ').unwrap_or((rest, "")))
    else {
        return printable(owner);
    };
    let program = program.trim_matches(['(', ')']);
    let program = program.strip_prefix("sshjobs ").unwrap_or(program);
    let program = if program.is_empty() {
        "process"
    } else {
        program
    };
    printable(&format!("{program} {pid}"))
}

/// The state in a word or two: `waits` for input, `running`, `queued #2`, `exit 0`, `SIGKILL`.
pub(crate) fn state_of(entry: &JobEntry) -> String {
    if entry.awaiting_input {
        return "waits".to_owned();
    }
    if entry.kind() == JobKind::NotStarted {
        return "not started".to_owned();
    }
    let standing = &entry.standing;
    match (
        standing.exit_status,
        &standing.exit_signal,
        entry.queue_position,
    ) {
        (Some(status), ..) if standing.state == JobState::Exited => format!("exit {status}"),
        (_, Some(signal), _) if standing.state == JobState::Signaled => {
            format!("SIG{}", printable(signal))
        }
        (.., Some(position)) => format!("queued #{position}"),
        _ if entry.held => "held".to_owned(),
        _ => standing.state.as_str().replace('_', " "),
    }
}

/// The state, and when it was last seen if no process follows the job.
fn state_with_last_seen(entry: &JobEntry) -> String {
    let state = state_of(entry);
    match entry.last_seen_at {
        Some(seen_at) => format!("{state}, seen {} ago", age(seen_at)),
        None => state,
    }
}

fn colour(entry: &JobEntry) -> Option<u8> {
    match entry.kind() {
        JobKind::Waiting => Some(YELLOW),
        JobKind::Running | JobKind::Queued => Some(GREEN),
        JobKind::Failed => Some(RED),
        JobKind::Succeeded | JobKind::NotStarted => None,
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
