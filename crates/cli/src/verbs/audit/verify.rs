//! `sshjobs audit verify`: has anyone changed the log?

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde_json::json;

use super::checkpoints::{AuditCheckpoint, checkpoints_of, no_cluster};
use super::configured::{files, unreadable, unreadable_key};
use crate::args::AuditVerifyArgs;
use crate::exit::print;
use crate::json::json as json_line;
use crate::{ProgramExit, note};
use sshjobs_core::jobs::{Cluster, Jobs};
use sshjobs_policy::audit::{AuditKey, Fault, KnownHeads, PublicKey, Report, verify, visible_text};
use sshjobs_wire::Error;

pub(super) async fn verify_log(
    jobs: &Jobs,
    cluster: Option<&Cluster>,
    args: AuditVerifyArgs,
) -> Result<ProgramExit, Error> {
    let configured = files(jobs).await;
    // A copy with a name is another machine's log, which that machine's key has signed.
    let is_foreign = args.file.is_some() && args.name.is_some();
    let key = match (args.public_key, &configured) {
        (Some(key), _) => Some(key),
        (None, Ok(files)) if !is_foreign => own_key(&files.key)?,
        (None, _) => None,
    };
    if key.is_none() {
        note("signatures are not checked: name the key that signs them with --public-key");
    }
    if cluster.is_none() && args.name.is_some() {
        return Err(no_cluster());
    }
    let is_uncompared_copy = args.file.is_some() && args.name.is_none();
    let (log, name) = match (args.file, args.name) {
        (Some(copy), name) => (copy, name),
        (None, name) => {
            let files = configured?;
            let name = name.unwrap_or_else(|| files.log_name());
            (files.log, Some(name))
        }
    };
    let in_cluster = match (cluster, name) {
        (Some(cluster), Some(name)) => Some(ClusterLog {
            checkpoints: checkpoints_of(cluster, Some(&name)).await?,
            name,
        }),
        (Some(_), None) | (None, _) => None,
    };
    if is_uncompared_copy {
        note("not compared with a cluster: in one, say with --name which log FILE is a copy of");
    }
    let mut known = KnownHeads::default();
    args.heads.iter().for_each(|head| known.must_contain(*head));
    let checkpoints = in_cluster.iter().flat_map(|log| &log.checkpoints);
    checkpoints.for_each(|checkpoint| known.must_not_contradict(checkpoint.head));
    let is_known = in_cluster.as_ref().is_some_and(|log| !log.checkpoints.is_empty());
    if is_known && !log.exists() {
        let message = format!(
            "{} is gone, and the cluster has checkpoints of it",
            log.display()
        );
        note(&visible_text(&message));
        return Ok(ProgramExit::DECLINED);
    }
    let checked = CheckedLog {
        report: read(log.clone(), key, known).await?,
        log,
        key,
        in_cluster,
    };
    let printed = if args.json {
        print(&json_line(&checked.as_json()))
    } else {
        print(&checked.in_words().join("\n"))
    };
    Ok(
        if printed == ProgramExit::SUCCESS && !checked.faults().is_empty() {
            ProgramExit::DECLINED
        } else {
            printed
        },
    )
}

async fn read(log: PathBuf, key: Option<PublicKey>, known: KnownHeads) -> Result<Report, Error> {
    let read = tokio::task::spawn_blocking(move || verify(&log, key, &known)).await;
    read.expect("a check does not panic").map_err(|error| unreadable(&error))
}

/// A log in the cluster.
struct ClusterLog {
    name: String,
    checkpoints: Vec<AuditCheckpoint>,
}

/// The result of a check.
struct CheckedLog {
    log: PathBuf,
    report: Report,
    key: Option<PublicKey>,
    /// The checkpoints in the cluster with which the log was compared.
    in_cluster: Option<ClusterLog>,
}

impl CheckedLog {
    /// All faults: those of the log, and that the cluster does not know it.
    fn faults(&self) -> Vec<Fault> {
        let mut faults = self.report.faults.clone();
        let unknown = self.in_cluster.iter().filter(|log| log.checkpoints.is_empty());
        faults.extend(unknown.map(|log| Fault {
            file: self.log.clone(),
            line: 0,
            message: format!(
                "the cluster has no checkpoint of {}: either none was copied, or the log has another name \
                 there (`sshjobs audit checkpoints` lists them)",
                log.name
            ),
        }));
        faults
    }

    fn in_words(&self) -> Vec<String> {
        let report = &self.report;
        let mut lines = Vec::new();
        match report.head {
            None => lines.push(
                "the log has no lines; if calls were recorded before, it was emptied or replaced"
                    .to_owned(),
            ),
            Some(head) => {
                lines.push(format!("lines {} to {}", report.first, head.seq));
                if report.first > 1 {
                    let first = report.first;
                    lines.push(match report.pruned_to {
                        Some(_) => {
                            format!("the lines before {first} were deleted by `audit prune`")
                        }
                        None => format!(
                            "the lines before {first} are not here, and the log does not say why"
                        ),
                    });
                }
                lines.extend(self.signed_lines(head.seq));
                lines.push(format!("head {head}"));
            }
        }
        if let Some(last) = self.in_cluster.as_ref().and_then(|log| log.checkpoints.last()) {
            lines.push(format!(
                "{} lines compared with checkpoints in the cluster, which end with line {}",
                report.compared, last.head.seq
            ));
        }
        let faults = self.faults();
        let result = match faults.len() {
            0 => "nothing is wrong".to_owned(),
            1 => "1 fault".to_owned(),
            count => format!("{count} faults"),
        };
        lines.extend(faults.iter().map(described));
        lines.push(result);
        lines.iter().map(|line| visible_text(line)).collect()
    }

    /// Which lines are signed, of those up to `newest`.
    fn signed_lines(&self, newest: u64) -> Vec<String> {
        let (Some(signed), Some(key)) = (self.report.signed_to, self.key) else {
            return Vec::new();
        };
        let mut lines = vec![format!("signed up to line {signed} with the key {key}")];
        if signed < newest {
            lines.push(format!("lines {} to {newest} are not signed", signed + 1));
        }
        lines
    }

    fn as_json(&self) -> serde_json::Value {
        let report = &self.report;
        let faults = self.faults();
        let faults = faults
            .iter()
            .map(|fault| json!({"file": fault.file, "line": fault.line, "message": fault.message}));
        json!({
            "first": report.first,
            "pruned_to": report.pruned_to,
            "head": report.head.map(|head| head.to_string()),
            "signed_to": report.signed_to,
            "signatures_checked": report.has_checked_signatures,
            "compared": report.compared,
            "cluster_checkpoints": self.in_cluster.as_ref().map(|log| log.checkpoints.len()),
            "faults": faults.collect::<Vec<_>>(),
        })
    }
}

fn described(fault: &Fault) -> String {
    match fault.line {
        0 => format!("{}: {}", fault.file.display(), fault.message),
        number => format!("{}:{number}: {}", fault.file.display(), fault.message),
    }
}

/// The public part of the configured key. `None` if there is none on this machine.
fn own_key(file: &Path) -> Result<Option<PublicKey>, Error> {
    match AuditKey::read(file) {
        Ok(key) => Ok(Some(key.public())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(source) => Err(unreadable_key(file, &source)),
    }
}
