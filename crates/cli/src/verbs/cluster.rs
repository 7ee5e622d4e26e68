//! `sshjobs cluster status` and `sshjobs store copy`.

use std::path::Path;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::token::explained;
use crate::args::{ClusterStatusArgs, StoreCopyArgs};
use crate::exit::print;
use crate::json::json;
use crate::terminal::in_columns;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::{Cluster, ClusterStatus, CopyReport, ReplicaState};
use sshjobs_wire::Error;
use sshjobs_wire::tokens::Tokens;

/// Shows a cluster.
pub fn cluster_status(status: &ClusterStatus, args: &ClusterStatusArgs) -> ProgramExit {
    let printed = if args.json {
        print(&json(status))
    } else {
        print(&status_lines(status).join("\n"))
    };
    let problems = status.problems();
    for problem in &problems {
        note(problem);
    }
    if printed != ProgramExit::SUCCESS || problems.is_empty() {
        printed
    } else {
        ProgramExit::DECLINED
    }
}

fn status_lines(status: &ClusterStatus) -> Vec<String> {
    let mut lines = Vec::new();
    let head = [
        "REPLICA", "STATE", "HOSTS", "JOBS", "LAG", "MACHINE", "PROCESS",
    ]
    .map(str::to_owned);
    let replicas = status.replicas.iter().map(|replica| {
        let state = match replica.state {
            ReplicaState::Active => "active",
            ReplicaState::Leaving => "leaving",
            ReplicaState::Ended => "ended",
        };
        [
            replica.name.clone(),
            state.to_owned(),
            replica.hosts.to_string(),
            replica.jobs.to_string(),
            replica.lag.to_string(),
            replica.machine.clone(),
            replica.process.clone(),
        ]
    });
    lines.extend(in_columns(
        &std::iter::once(head).chain(replicas).collect::<Vec<_>>(),
    ));
    lines.push(String::new());

    let head = ["HOST", "REPLICA", "FENCING TOKEN"].map(str::to_owned);
    let hosts = status.hosts.iter().map(|host| {
        [
            host.host.clone(),
            host.replica.clone().unwrap_or_else(|| "-".to_owned()),
            host.token.to_string(),
        ]
    });
    lines.extend(in_columns(
        &std::iter::once(head).chain(hosts).collect::<Vec<_>>(),
    ));
    lines.push(String::new());

    let nats = &status.nats;
    lines.push(format!(
        "NATS: server {} of version {}, round trip {} µs",
        nats.server,
        nats.version,
        nats.round_trip.as_micros()
    ));
    let head = ["STREAM", "MESSAGES", "BYTES", "COPIES", "LEADER"].map(str::to_owned);
    let streams = nats.streams.iter().map(|stream| {
        let copies = match stream.copies_behind {
            0 => stream.copies.to_string(),
            behind => format!("{} ({behind} behind)", stream.copies),
        };
        [
            stream.name.clone(),
            stream.messages.to_string(),
            stream.bytes.to_string(),
            copies,
            stream.leader.clone().unwrap_or_else(|| "-".to_owned()),
        ]
    });
    lines.extend(in_columns(
        &std::iter::once(head).chain(streams).collect::<Vec<_>>(),
    ));
    lines
}

/// Copies the jobs and tokens of a state directory to a cluster, and reports what was copied.
///
/// # Errors
/// If the state directory or NATS can't be used, or a copy differs.
pub async fn store_copy(
    state_dir: &Path,
    cluster: &Cluster,
    tokens: &Tokens,
    args: &StoreCopyArgs,
) -> Result<ProgramExit, Error> {
    if !state_dir.is_dir() {
        return Err(Error::invalid(
            format!("there is no state directory {}", state_dir.display()),
            "name one with --state-dir",
        ));
    }
    // Drawn on terminals only.
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let style = ProgressStyle::with_template("{bar:24} {pos}/{len} jobs  {eta} left");
    bar.set_style(style.expect("the template is constant"));
    let shown = bar.clone();
    let copying = cluster.import(state_dir.to_owned(), move |done, total| {
        shown.set_length(total as u64);
        shown.set_position(done as u64);
    });
    let report = copying.await?;
    bar.finish_and_clear();
    let copied_tokens = tokens.add_all_of(&Tokens::of(state_dir)).map_err(explained)?;
    Ok(print_report(&report, copied_tokens, args))
}

fn print_report(report: &CopyReport, tokens: usize, args: &StoreCopyArgs) -> ProgramExit {
    let printed = if args.json {
        let mut line = serde_json::to_value(report).expect("a report is plain data");
        line["tokens"] = tokens.into();
        print(&json(&line))
    } else {
        print(&format!(
            "copied and compared {} jobs with {} bytes of output, and {} tokens; {} jobs were \
             already in the cluster",
            report.copied, report.bytes, tokens, report.known
        ))
    };
    for left in &report.left {
        note(&format!("{} was not copied: {}", left.id, left.why));
    }
    if printed == ProgramExit::SUCCESS && !report.left.is_empty() {
        return ProgramExit::DECLINED;
    }
    printed
}
