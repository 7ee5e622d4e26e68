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
use sshjobs_core::jobs::{UsageSample, printable};
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
    let mut lines = match (&job.processes, &job.why) {
        (Some(processes), _) => in_words(processes),
        (None, Some(why)) => why_in_words(why),
        (None, None) => vec![printable(&format!("{}: {}", job.job_id, job.standing))],
    };
    lines.extend(facts_in_words(job));
    lines.extend(usage_in_words(&job.usage));
    lines
}

/// Its attempts, tree, GPUs and files.
fn facts_in_words(job: &JobEntry) -> Vec<String> {
    let attempts = job.attempts.filter(|attempts| *attempts > 1);
    let tree = job.tree.as_ref().map(|tree| match &tree.commit {
        Some(commit) => format!("{} at {commit:.10}", tree.path),
        None => tree.path.clone(),
    });
    let results = &job.results;
    let files = results.fetched.as_ref().zip(results.fetched_to.as_ref()).map(|(files, place)| {
        let total = results.fetched_total.unwrap_or(files.len());
        format!("{total} fetched to {place}")
    });
    let failed = &results.fetch_failed;
    let facts = [
        ("attempts", attempts.map(|attempts| attempts.to_string())),
        ("tree", tree),
        ("GPUs", (!job.gpus.is_empty()).then(|| job.gpus.join(", "))),
        ("files", files),
        (
            "not fetched",
            (!failed.is_empty()).then(|| failed.join("; ")),
        ),
    ];
    let lines = facts.into_iter().filter_map(|(name, fact)| Some((name, fact?)));
    lines.map(|(name, fact)| printable(&format!("{name}: {fact}"))).collect()
}

/// A row with a sparkline and the newest value for each figure.
fn usage_in_words(samples: &[UsageSample]) -> Vec<String> {
    let Some(newest) = samples.last() else { return Vec::new() };
    let mut rows = Vec::new();
    let mut row =
        |name: &str, value: &dyn Fn(&UsageSample) -> u64, most: Option<u64>, now: String| {
            let values: Vec<u64> = samples.iter().map(value).collect();
            rows.push([name.to_owned(), sparkline(&values, most), now]);
        };
    if let Some(gpus) = newest.gpus {
        let of_gpus = |sample: &UsageSample| sample.gpus.unwrap_or_default();
        row(
            "GPU use",
            &|sample| of_gpus(sample).percent.into(),
            Some(100),
            format!("{} %", gpus.percent),
        );
        row(
            "GPU memory",
            &|sample| of_gpus(sample).memory_mib,
            None,
            size(gpus.memory_mib.saturating_mul(1 << 20)),
        );
        row(
            "GPU heat",
            &|sample| of_gpus(sample).temperature.into(),
            Some(100),
            format!("{} °C", gpus.temperature),
        );
    }
    row(
        "CPU",
        &|sample| sample.cpu_percent.into(),
        None,
        format!("{} %", newest.cpu_percent),
    );
    row(
        "memory",
        &|sample| sample.memory_kib,
        None,
        size(newest.memory_kib.saturating_mul(1 << 10)),
    );
    in_columns(&rows)
}

/// The newest values as bars, relative to `most` or to the largest of them.
fn sparkline(values: &[u64], most: Option<u64>) -> String {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    let drawn = &values[values.len().saturating_sub(MOST_DRAWN)..];
    let most = most.or_else(|| drawn.iter().copied().max()).unwrap_or(0).max(1);
    let bar = |value: &u64| {
        let step = (*value).min(most).saturating_mul(7) / most;
        usize::try_from(step)
            .ok()
            .and_then(|step| BARS.get(step))
            .copied()
            .unwrap_or('█')
    };
    drawn.iter().map(bar).collect()
}

const HEAD: [&str; 6] = ["PID", "CPU", "AGE", "MEMORY", "COMMAND", "WAITS FOR"];
/// Samples of a sparkline.
const MOST_DRAWN: usize = 60;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sparkline_has_its_newest_values_and_its_own_scale() {
        assert_eq!(sparkline(&[0, 50, 100], Some(100)), "▁▄█");
        assert_eq!(sparkline(&[1, 2, 4], None), "▂▄█");
        assert_eq!(sparkline(&[0, 0], None), "▁▁");
        assert_eq!(sparkline(&[200], Some(100)), "█");
        assert_eq!(sparkline(&[3; 100], None).chars().count(), MOST_DRAWN);
    }
}
