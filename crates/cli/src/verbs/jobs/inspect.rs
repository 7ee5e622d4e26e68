//! `sshjobs inspect`: the processes of a running job, with their figures and the events that they wait
//! for, or why a job ended.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::finish::finish;
use super::pick;
use crate::ProgramExit;
use crate::args::InspectArgs;
use crate::exit::print;
use crate::json::json;
use crate::terminal::in_columns;
use sshjobs_core::jobs::printable;
use sshjobs_wire::in_largest_unit;
use sshjobs_wire::remote::Api;
use sshjobs_wire::{DetailArg, EndReason, JobEntry, JobsRequest, ProcessEntry, ProcessList};

/// Shows the processes of a job, or why it ended.
pub async fn inspect(api: &Api, args: InspectArgs) -> ProgramExit {
    finish(api, async {
        let id = pick::resolve(api, &args.job).await?;
        let request = JobsRequest {
            job_id: Some(id.clone()),
            detail: Some(DetailArg::Processes),
            ..JobsRequest::default()
        };
        let reply = api.jobs(request).await?;
        let Some(job) = reply.jobs.first() else { return Ok(ProgramExit::SUCCESS) };
        if args.json {
            return Ok(print(&json(job)));
        }
        Ok(print(&detail_in_words(job).join("\n")))
    })
    .await
}

/// The processes of a job, why it ended, or its state, as lines.
pub(crate) fn detail_in_words(job: &JobEntry) -> Vec<String> {
    match (&job.processes, &job.why) {
        (Some(processes), _) => in_words(processes),
        (None, Some(why)) => why_in_words(why),
        (None, None) => vec![printable(&format!("{}: {}", job.job_id, job.standing))],
    }
}

const HEAD: [&str; 6] = ["PID", "CPU", "AGE", "MEMORY", "COMMAND", "WAITS FOR"];
/// Maximum characters of a command in the table, so that the last column fits.
const SHOWN_OF_COMMAND: usize = 36;

fn in_words(list: &ProcessList) -> Vec<String> {
    let mut rows = vec![HEAD.map(str::to_owned)];
    rows.extend(
        by_parent(&list.processes)
            .into_iter()
            .map(|(depth, process)| row(depth, process)),
    );
    let mut lines = in_columns(&rows);
    lines.push(String::new());
    if list.total > list.processes.len() {
        let shown = list.processes.len();
        lines.push(format!(
            "{shown} of {} processes: the oldest and the newest",
            list.total
        ));
    }
    if let Some(terminal) = list.terminal {
        let input = if terminal.lines {
            "whole lines"
        } else {
            "single keys"
        };
        let echo = if terminal.echo { "shown" } else { "not shown" };
        lines.push(format!(
            "its terminal passes on {input}; typed keys are {echo}"
        ));
    }
    lines.push(printable(&list.summary));
    lines
}

/// Why a job ended, and the resources that it used.
fn why_in_words(why: &EndReason) -> Vec<String> {
    let mut lines = vec![printable(&why.summary)];
    if why.cpu_ms.is_none() && why.peak_memory_bytes.is_none() {
        // Attached jobs have no figures, and those that were not started neither.
        return lines;
    }
    let cpu = why.cpu_ms.map_or_else(|| "unknown".to_owned(), seconds);
    let memory = why.peak_memory_bytes.map_or_else(|| "unknown".to_owned(), size);
    lines.push(format!(
        "processor time {cpu}, peak memory of its largest process {memory}"
    ));
    let (kills, place) = match why.memory_kills_in_cgroup {
        Some(kills) => (Some(kills), "in its control group"),
        None => (why.memory_kills_on_host, "on its host"),
    };
    if let Some(kills @ 1..) = kills {
        lines.push(format!(
            "killed by the kernel because memory ran out, while it ran, {place}: {kills}"
        ));
    }
    lines
}

/// A time in seconds, with two decimals.
fn seconds(milliseconds: u64) -> String {
    format!("{}.{:02} s", milliseconds / 1000, milliseconds % 1000 / 10)
}

fn row(depth: usize, process: &ProcessEntry) -> [String; 6] {
    let command = format!(
        "{}{}",
        "  ".repeat(depth.min(6)),
        printable(&process.command)
    );
    let is_long = command.chars().count() > SHOWN_OF_COMMAND;
    let shown: String = command.chars().take(SHOWN_OF_COMMAND).collect();
    let state = match &process.waits_for {
        Some(event) => printable(event),
        None if process.state == "running" => "- (running)".to_owned(),
        None => "? (hidden by the host)".to_owned(),
    };
    [
        process.pid.to_string(),
        format!("{} %", process.cpu_percent.round()),
        in_largest_unit(Duration::from_millis(process.elapsed_ms)),
        process.memory_bytes.map_or_else(|| "?".to_owned(), size),
        format!("{shown}{}", if is_long { "…" } else { "" }),
        format!("{state}{}", transfer(process)),
    ]
}

/// Bytes in a second, unless there were none.
fn transfer(process: &ProcessEntry) -> String {
    let rates = (process.read_bytes_per_s, process.written_bytes_per_s);
    let (Some(read), Some(written)) = rates else { return String::new() };
    if read == 0 && written == 0 {
        return String::new();
    }
    format!("; reads {}/s, writes {}/s", size(read), size(written))
}

/// A number of bytes in the largest unit.
fn size(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.into_iter().find(|(unit, _)| bytes >= *unit) {
        Some((unit, name)) => {
            let tenths = bytes.saturating_mul(10) / unit;
            format!("{}.{} {name}", tenths / 10, tenths % 10)
        }
        None => format!("{bytes} B"),
    }
}

/// The processes as a tree: each with its depth, after its parent.
fn by_parent(processes: &[ProcessEntry]) -> Vec<(usize, &ProcessEntry)> {
    let mut children: BTreeMap<u32, Vec<&ProcessEntry>> = BTreeMap::new();
    let listed: BTreeSet<u32> = processes.iter().map(|process| process.pid).collect();
    let mut stack: Vec<(usize, &ProcessEntry)> = Vec::new();
    for process in processes.iter().rev() {
        if listed.contains(&process.parent) && process.parent != process.pid {
            children.entry(process.parent).or_default().push(process);
        } else {
            stack.push((0, process));
        }
    }
    let mut tree = Vec::new();
    while let Some((depth, process)) = stack.pop() {
        tree.push((depth, process));
        let below = children.remove(&process.pid).unwrap_or_default();
        stack.extend(below.into_iter().map(|child| (depth + 1, child)));
    }
    tree
}
