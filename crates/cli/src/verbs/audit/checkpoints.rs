//! `sshjobs audit checkpoints`: checkpoints of its replicas' logs that a cluster keeps.

use std::time::SystemTime;

use serde_json::json;

use crate::args::AuditCheckpointsArgs;
use crate::exit::print;
use crate::json::json as json_line;
use crate::terminal::in_columns;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::{Cluster, KeptHead};
use sshjobs_policy::audit::{LogHead, visible_text};
use sshjobs_wire::Error;

/// A checkpoint that a cluster keeps.
pub(super) struct AuditCheckpoint {
    /// Name of the log.
    log: String,
    /// The line and its hash.
    pub(super) head: LogHead,
    /// When the cluster received it.
    kept_at: SystemTime,
}

/// The checkpoints of a log that a cluster keeps, the oldest first, or without a log the newest of each.
///
/// # Errors
/// Also if one of them can't be read: someone else may have written it.
pub(super) async fn checkpoints_of(
    cluster: &Cluster,
    log: Option<&str>,
) -> Result<Vec<AuditCheckpoint>, Error> {
    let kept = cluster.audit_heads(log.map(str::to_owned)).await?;
    kept.into_iter().map(checkpoint_of).collect()
}

fn checkpoint_of(kept: KeptHead) -> Result<AuditCheckpoint, Error> {
    match kept.head.parse() {
        Ok(head) => Ok(AuditCheckpoint {
            log: kept.log,
            head,
            kept_at: kept.kept_at,
        }),
        Err(error) => Err(Error::invalid(
            format!(
                "{:?}, which the cluster keeps for {}, is not a checkpoint: {error}",
                kept.head, kept.log
            ),
            "sshjobs does not write such: find out who else can publish to the cluster's NATS",
        )),
    }
}

/// Lists the logs with their newest checkpoints, or all checkpoints of a log.
pub(super) async fn checkpoints(
    cluster: Option<&Cluster>,
    args: AuditCheckpointsArgs,
) -> Result<ProgramExit, Error> {
    let cluster = cluster.ok_or_else(no_cluster)?;
    let checkpoints = checkpoints_of(cluster, args.name.as_deref()).await?;
    if checkpoints.is_empty() {
        note(&match &args.name {
            Some(name) => format!(
                "the cluster has no checkpoint of {}; without --name it lists the logs that it knows",
                visible_text(name)
            ),
            None => "the cluster has no checkpoint of any log".to_owned(),
        });
        return Ok(ProgramExit::DECLINED);
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
    let heading = ["TIME", "LOG", "NEWEST CHECKPOINT"].map(str::to_owned);
    let rows = checkpoints.iter().map(|checkpoint| {
        [
            time(checkpoint.kept_at),
            visible_text(&checkpoint.log),
            checkpoint.head.to_string(),
        ]
    });
    let rows: Vec<_> = std::iter::once(heading).chain(rows).collect();
    Ok(print(&in_columns(&rows).join("\n")))
}

/// The error of a call that needs a cluster.
pub(super) fn no_cluster() -> Error {
    let hint = "name it with --cluster nats://HOST:4222, or as `nats` in the table [cluster] of the \
                configuration; without a cluster, use `anchors` in the table [audit] and --head";
    Error::invalid("no cluster is configured", hint)
}

fn as_json(checkpoint: &AuditCheckpoint) -> String {
    json_line(&json!({
        "log": checkpoint.log,
        "head": checkpoint.head.to_string(),
        "kept_at": time(checkpoint.kept_at),
    }))
}

fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
