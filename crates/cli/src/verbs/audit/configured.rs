//! The audit log that the policy names, and errors about logs and keys.

use std::path::Path;

use sshjobs_core::jobs::Jobs;
use sshjobs_policy::audit::{AuditError, AuditFiles};
use sshjobs_wire::Error;

/// The files of the log that the policy names.
pub(super) async fn files(jobs: &Jobs) -> Result<AuditFiles, Error> {
    let hint = "name one as `file` in the table [audit] of the policy file, or give FILE";
    let named = jobs.audit_files().await;
    let named = named.ok_or_else(|| Error::invalid("no audit log is named", hint))?;
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
