//! Results of copies: a line for each file, in words or as JSON.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::exit::print;
use crate::{ProgramExit, report};
use sshjobs_core::jobs::{
    FileChange, Got, Put, SyncReport, TreeReport, Verified, printable, shown,
};
use sshjobs_wire::{Error, shown_at};

/// Result of one source argument on one host.
#[derive(Clone, Debug)]
pub(super) struct CopyResult {
    /// The file or directory, for people.
    pub(super) shown: String,
    pub(super) host: String,
    /// created, changed, unchanged, copied.
    pub(super) change: &'static str,
    pub(super) bytes: u64,
    /// Fields for JSON.
    pub(super) details: Value,
    /// Entries of a directory that failed.
    pub(super) failed: usize,
}

impl CopyResult {
    pub(super) fn of_put(host: &str, put: &Put) -> Self {
        let change = match put.change {
            FileChange::Created => "created",
            FileChange::Changed => "changed",
            FileChange::Unchanged => "unchanged",
        };
        Self {
            shown: shown_at(host, &put.path),
            host: host.to_owned(),
            change,
            bytes: put.size,
            details: json!({
                "path": put.path.to_string(),
                "size": put.size,
                "sha256": put.digest.to_string(),
                "verified": word(put.verified),
                "resumed_bytes": put.resumed_from,
                "backup": put.backup.as_ref().map(ToString::to_string),
            }),
            failed: 0,
        }
    }

    /// The same under the name that the person has typed.
    pub(super) fn named(self, shown: String) -> Self {
        Self { shown, ..self }
    }

    pub(super) fn of_get(host: &str, local: &std::path::Path, got: &Got) -> Self {
        Self {
            shown: local.display().to_string(),
            host: host.to_owned(),
            change: if got.is_unchanged {
                "unchanged"
            } else {
                "copied"
            },
            bytes: got.size,
            details: json!({
                "path": local.display().to_string(),
                "size": got.size,
                "sha256": got.digest.to_string(),
                "verified": word(got.verified),
                "resumed_bytes": got.resumed_from,
            }),
            failed: 0,
        }
    }

    pub(super) fn of_link(host: &str, local: &std::path::Path) -> Self {
        Self {
            shown: local.display().to_string(),
            host: host.to_owned(),
            change: "copied",
            bytes: 0,
            details: json!({
                "path": local.display().to_string(),
                "is_link": true,
            }),
            failed: 0,
        }
    }

    pub(super) fn of_tree(host: &str, shown: String, tree: &TreeReport) -> Self {
        for (path, error) in &tree.failed {
            let error = Error::from(sshjobs_core::jobs::Error::from(error.clone()));
            // The error names its path, except one about the whole directory.
            tracing::debug!(path, "an entry failed");
            report(&error);
        }
        for path in &tree.skipped {
            crate::note(&format!(
                "{path} is skipped: it is neither a file nor a directory nor a link"
            ));
        }
        Self {
            details: json!({
                "path": shown,
                "written": tree.written,
                "unchanged": tree.unchanged,
                "bytes": tree.bytes,
                "verified": tree.verified,
                "skipped": tree.skipped,
                "failed": tree.failed.iter().map(|(path, _)| path).collect::<Vec<_>>(),
            }),
            shown,
            host: host.to_owned(),
            change: "copied",
            bytes: tree.bytes,
            failed: tree.failed.len(),
        }
    }

    pub(super) fn of_sync(
        host: &str,
        shown: String,
        synced: &SyncReport,
        is_dry_run: bool,
    ) -> Self {
        for (path, error) in &synced.failed {
            tracing::debug!(?path, "an entry failed");
            report(&Error::from(sshjobs_core::jobs::Error::from(error.clone())));
        }
        for path in &synced.skipped {
            let path = shown_path(path);
            crate::note(&format!(
                "{path} is skipped: it is neither a file nor a directory nor a link"
            ));
        }
        for path in &synced.kept {
            let path = shown_path(path);
            crate::note(&format!(
                "{path} is gone at the source and was changed at the target: it stays there"
            ));
        }
        let paths =
            |paths: &[PathBuf]| paths.iter().map(|path| shown_path(path)).collect::<Vec<_>>();
        let failed: Vec<PathBuf> = synced.failed.iter().map(|(path, _)| path.clone()).collect();
        Self {
            details: json!({
                "path": shown,
                "sent": paths(&synced.sent),
                "deleted": paths(&synced.deleted),
                "unchanged": synced.unchanged,
                "bytes": synced.bytes,
                "sent_bytes": synced.sent_bytes,
                "kept": paths(&synced.kept),
                "skipped": paths(&synced.skipped),
                "failed": paths(&failed),
                "commit": synced.commit,
                "hash": synced.hash,
            }),
            shown,
            host: host.to_owned(),
            change: match (is_dry_run, synced.has_changes()) {
                (true, _) => "dry_run",
                (false, true) => "changed",
                (false, false) => "unchanged",
            },
            bytes: synced.sent_bytes,
            failed: synced.failed.len(),
        }
    }

    /// Prints it to stdout.
    pub(super) fn print(&self, as_json: bool) -> ProgramExit {
        if as_json {
            let mut fields = json!({"host": self.host, "change": self.change});
            if let (Value::Object(fields), Value::Object(more)) = (&mut fields, &self.details) {
                fields.extend(more.clone());
            }
            return print(&fields.to_string());
        }
        if let (Some(sent), Some(deleted)) = (
            self.details["sent"].as_array(),
            self.details["deleted"].as_array(),
        ) {
            return print(&self.sync_lines(sent, deleted));
        }
        let mut line = format!(
            "{}: {}, {} bytes",
            printable(&self.shown),
            self.change,
            self.bytes
        );
        if let Some(resumed) = self.details["resumed_bytes"].as_u64().filter(|bytes| *bytes > 0) {
            line.push_str(&format!(", {resumed} of them from an earlier attempt"));
        }
        if let Some(written) = self.details["written"].as_u64() {
            line.push_str(&format!(", {written} files"));
        }
        if self.details["verified"] == "unverified" {
            line.push_str(", unverified");
        }
        print(&line)
    }
}

impl CopyResult {
    /// A line with the counts of a sync. Before it, the steps of a dry run: a line for each entry.
    fn sync_lines(&self, sent: &[Value], deleted: &[Value]) -> String {
        let is_dry_run = self.change == "dry_run";
        let mut lines = String::new();
        if is_dry_run {
            for (sign, paths) in [("send", sent), ("delete", deleted)] {
                for path in paths.iter().filter_map(Value::as_str) {
                    lines.push_str(&format!("{sign:<6} {path}\n"));
                }
            }
        }
        let would = if is_dry_run { "would be " } else { "" };
        lines.push_str(&format!(
            "{}: {} {would}sent, {} {would}deleted, {} unchanged",
            printable(&self.shown),
            sent.len(),
            deleted.len(),
            self.details["unchanged"]
        ));
        if !is_dry_run && self.bytes > 0 {
            lines.push_str(&format!(", {} bytes", self.bytes));
        }
        lines
    }
}

/// A path for people: control characters and bytes that are not UTF-8 are escaped.
fn shown_path(path: &Path) -> String {
    shown(path.as_os_str().as_bytes())
}

fn word(verified: Verified) -> &'static str {
    match verified {
        Verified::BySha256 => "sha256",
        Verified::ByReadingBack => "read_back",
        Verified::Not => "unverified",
    }
}
