//! The subcommands of `sshjobs audit`, and what they share.

use std::path::Path;

use super::checkpoints::checkpoints;
use super::show::show;
use super::verify::check;
use crate::audit::{AuditError, AuditFiles, AuditKey};
use crate::cli::Exit;
use crate::cli::args::{AuditArgs, AuditKeyArgs, AuditSubcommand};
use crate::cli::exit::print;
use crate::jobs::{Cluster, Jobs};
use crate::wire::Error;

/// Performs `sshjobs audit`. `cluster` is `None` if there is none, or if the subcommand
/// [needs none](AuditArgs::needs_cluster).
///
/// # Errors
/// If no log is named, or it can't be read.
pub async fn audit(jobs: &Jobs, cluster: Option<&Cluster>, args: AuditArgs) -> Result<Exit, Error> {
    match args.verb {
        AuditSubcommand::Verify(args) => check(jobs, cluster, args).await,
        AuditSubcommand::Show(args) => show(jobs, args).await,
        AuditSubcommand::Checkpoints(args) => checkpoints(cluster, args).await,
        AuditSubcommand::Key(args) => key(jobs, args).await,
    }
}

async fn key(jobs: &Jobs, args: AuditKeyArgs) -> Result<Exit, Error> {
    let file = match args.file {
        Some(file) => file,
        None => files(jobs).await?.key,
    };
    let key = AuditKey::read(&file).map_err(|source| unreadable_key(&file, &source))?;
    Ok(print(&key.public().to_string()))
}

/// The files of the log that the policy names.
pub(super) async fn files(jobs: &Jobs) -> Result<AuditFiles, Error> {
    let hint = "name one as `file` in the table [audit] of the policy file, or give FILE";
    let missing = || Error::invalid("no audit log is named", hint);
    let named = jobs.audit_files().await.ok_or_else(missing)?;
    named.map_err(|error| Error::invalid(error, hint))
}

pub(super) fn unreadable_key(file: &Path, error: &std::io::Error) -> Error {
    Error::invalid(
        format!(
            "the key of the audit log, {}, can't be used: {error}",
            file.display()
        ),
        "it is made with the first call that is recorded; to check without it, use --public-key",
    )
}

pub(super) fn unreadable(error: &AuditError) -> Error {
    Error::invalid(error.to_string(), "check the name and its permissions")
}
