//! The subcommands of `sshjobs audit`.

use super::checkpoints::checkpoints;
use super::configured::{files, unreadable, unreadable_key};
use super::show::show;
use super::verify::verify_log;
use crate::ProgramExit;
use crate::args::{AuditArgs, AuditKeyArgs, AuditPruneArgs, AuditSubcommand};
use crate::exit::print;
use sshjobs_core::jobs::{Cluster, Jobs};
use sshjobs_policy::audit::{AuditKey, AuditLog};
use sshjobs_wire::Error;

/// Performs `sshjobs audit`. `cluster` is `None` if there is none, or if the subcommand
/// [needs none](AuditArgs::needs_cluster).
///
/// # Errors
/// If no log is named, or it can't be read.
pub async fn audit(
    jobs: &Jobs,
    cluster: Option<&Cluster>,
    args: AuditArgs,
) -> Result<ProgramExit, Error> {
    match args.verb {
        AuditSubcommand::Verify(args) => verify_log(jobs, cluster, args).await,
        AuditSubcommand::Show(args) => show(jobs, args).await,
        AuditSubcommand::Checkpoints(args) => checkpoints(cluster, args).await,
        AuditSubcommand::Prune(args) => prune(jobs, &args).await,
        AuditSubcommand::Key(args) => key(jobs, args).await,
    }
}

async fn prune(jobs: &Jobs, args: &AuditPruneArgs) -> Result<ProgramExit, Error> {
    let files = files(jobs).await?;
    let before = args.before;
    let pruning = tokio::task::spawn_blocking(move || {
        // Pruning never rotates the log.
        AuditLog::new(files, u64::MAX)?.prune(before)
    });
    let pruned = pruning
        .await
        .expect("pruning does not panic")
        .map_err(|error| unreadable(&error))?;
    Ok(print(&match pruned {
        Some(pruned) => format!(
            "deleted {} files with the lines up to {}",
            pruned.files.len(),
            pruned.last.seq
        ),
        None => "no full file is that old".to_owned(),
    }))
}

async fn key(jobs: &Jobs, args: AuditKeyArgs) -> Result<ProgramExit, Error> {
    let file = match args.file {
        Some(file) => file,
        None => files(jobs).await?.key,
    };
    let key = AuditKey::read(&file).map_err(|source| unreadable_key(&file, &source))?;
    Ok(print(&key.public().to_string()))
}
