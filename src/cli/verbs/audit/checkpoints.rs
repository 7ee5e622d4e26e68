//! `sshjobs audit checkpoints`: what a cluster keeps of the logs of its replicas.

use std::collections::BTreeMap;
use std::time::SystemTime;

use serde_json::json;

use crate::audit::Head;
use crate::cli::args::AuditCheckpointsArgs;
use crate::cli::exit::print;
use crate::cli::json::json as json_line;
use crate::cli::terminal::in_columns;
use crate::cli::{Exit, note};
use crate::jobs::{Cluster, printable};
use crate::wire::Error;

/// A checkpoint that a cluster keeps.
pub(super) struct Checkpoint {
    /// Name of the log.
    log: String,
    /// The line and its hash.
    pub(super) head: Head,
    /// When the cluster received it.
    kept_at: SystemTime,
}

/// The checkpoints of a log, or of all logs, that a cluster keeps. The oldest is first.
pub(super) async fn checkpoints_of(
    cluster: &Cluster,
    log: Option<&str>,
) -> Result<Vec<Checkpoint>, Error> {
    let kept = cluster.audit_heads(log.map(str::to_owned)).await?;
    let mut checkpoints = Vec::new();
    for kept in kept {
        match kept.head.parse() {
            Ok(head) => checkpoints.push(Checkpoint {
                log: kept.log,
                head,
                kept_at: kept.kept_at,
            }),
            Err(error) => note(&format!(
                "{}: {:?} in the cluster is no checkpoint: {error}",
                printable(&kept.log),
                kept.head
            )),
        }
    }
    Ok(checkpoints)
}

/// Lists the logs with their newest checkpoints, or all checkpoints of a log.
pub(super) async fn checkpoints(
    cluster: Option<&Cluster>,
    args: AuditCheckpointsArgs,
) -> Result<Exit, Error> {
    let Some(cluster) = cluster else {
        let hint = "name it with --cluster nats://HOST:4222, or as `nats` in the table [cluster] of \
                    the configuration; without a cluster, use `anchors` in the table [audit]";
        return Err(Error::invalid("there is no cluster", hint));
    };
    let checkpoints = checkpoints_of(cluster, args.name.as_deref()).await?;
    if checkpoints.is_empty() {
        note("the cluster has no checkpoint");
        return Ok(Exit::SUCCESS);
    }
    if args.json {
        let lines: Vec<String> = checkpoints.iter().map(as_json).collect();
        return Ok(print(&lines.join("\n")));
    }
    if args.name.is_some() {
        let lines = checkpoints
            .iter()
            .map(|checkpoint| format!("{} {}", time(checkpoint.kept_at), checkpoint.head));
        return Ok(print(&lines.collect::<Vec<_>>().join("\n")));
    }
    let mut newest = BTreeMap::new();
    for checkpoint in &checkpoints {
        newest.insert(&checkpoint.log, checkpoint);
    }
    let heading = ["TIME", "LOG", "NEWEST CHECKPOINT"].map(str::to_owned);
    let rows = newest.into_iter().map(|(log, checkpoint)| {
        [
            time(checkpoint.kept_at),
            printable(log),
            checkpoint.head.to_string(),
        ]
    });
    let rows: Vec<_> = std::iter::once(heading).chain(rows).collect();
    Ok(print(&in_columns(&rows).join("\n")))
}

fn as_json(checkpoint: &Checkpoint) -> String {
    json_line(&json!({
        "log": checkpoint.log,
        "head": checkpoint.head.to_string(),
        "kept_at": time(checkpoint.kept_at),
    }))
}

fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
