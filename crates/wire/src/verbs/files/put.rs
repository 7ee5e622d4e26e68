//! The verb put: writes a file of a host, or of many.

use std::fmt;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::copy::{CopiedTree, CopySource, SourceDirectory};
use super::file_paths::{about, remote_path};
use super::get::verified_word;
use crate::Service;
use crate::error::Error;
use crate::leave_out::{is_false, is_zero};
use crate::verbs::command::parse_become;
use sshjobs_core::jobs::{
    Digest, Edit, EditError, ExpectedContent, FileChange, FileSource, FilesError, HostFiles,
    HostPath, Put, PutOptions, RemotePath, TransferProgress, TreeOptions, apply, fold,
    unified_diff,
};

/// Write a file of a host, or change parts of it.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PutRequest {
    /// Host from ssh_hosts.
    #[serde(default)]
    pub host: Option<String>,
    /// Many hosts instead of one.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// File or directory to write.
    pub path: String,
    /// The whole new content.
    #[serde(default)]
    pub text: Option<String>,
    /// New content, in base64.
    #[serde(default)]
    pub base64: Option<String>,
    /// Copy this: HOST:PATH, or a path of the server's machine.
    #[serde(default)]
    pub from: Option<String>,
    /// Copy the directory from.
    #[serde(default)]
    pub recursive: bool,
    /// Replacements in the existing text.
    #[serde(default)]
    pub edits: Vec<EditArg>,
    /// Write only if the file has this SHA-256.
    #[serde(default)]
    pub if_sha256: Option<String>,
    /// As this user, such as root.
    #[serde(default, rename = "become")]
    pub becomes: Option<String>,
    /// sudo, doas or su. Default sudo.
    #[serde(default)]
    pub become_method: Option<String>,
    /// Permissions, such as 0644.
    #[serde(default)]
    pub mode: Option<String>,
    /// Make missing directories.
    #[serde(default)]
    pub parents: bool,
    /// Keep the old file beside the new one.
    #[serde(default)]
    pub backup: bool,
    /// Write into the file, not replace it.
    #[serde(default)]
    pub in_place: bool,
}

/// A replacement of text.
#[derive(Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(inline)]
pub struct EditArg {
    /// Exact text that occurs once.
    pub old: String,
    /// Text in its place.
    pub new: String,
}

/// Without contents, which may be secrets.
impl fmt::Debug for PutRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutRequest")
            .field("host", &self.host)
            .field("hosts", &self.hosts)
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// Result of a write.
#[derive(Clone, Default, Serialize, Deserialize, JsonSchema)]
pub struct PutReply {
    /// Path of the file, with symbolic links resolved.
    pub path: String,
    /// created, changed or unchanged. Absent for many hosts and for a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change: Option<String>,
    /// Size of the content in bytes.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub size: u64,
    /// SHA-256 of the content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// How the content was verified: sha256, read_back or unverified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
    /// Changes of a text, as a unified diff of at most 40 lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub diff: Option<String>,
    /// What was copied of a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<CopiedTree>,
    /// Where the old file is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backup: Option<String>,
    /// Bytes of an earlier, broken transfer that were not sent again.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub resumed_bytes: u64,
    /// For many hosts: those with the same result, failures last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<PutGroup>,
    /// Whether some hosts failed.
    #[serde(default, skip_serializing_if = "is_false")]
    pub failed: bool,
}

/// Without the difference, which has contents.
impl fmt::Debug for PutReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutReply")
            .field("path", &self.path)
            .field("change", &self.change)
            .field("groups", &self.groups)
            .finish_non_exhaustive()
    }
}

/// Hosts with the same result.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct PutGroup {
    /// Their names, folded: web[1-3,7].
    pub hosts: String,
    /// Number of hosts.
    pub count: usize,
    /// created, changed, unchanged, or the error.
    pub result: String,
}

/// Maximum bytes of a file that is edited.
const MOST_EDITED: u64 = 4 << 20;
/// Maximum bytes of a file whose difference is shown.
const MOST_COMPARED: u64 = 256 << 10;
/// Hosts written at the same time.
const AT_A_TIME: usize = 16;

/// The new content.
#[derive(Clone)]
enum PutContent {
    Whole(Bytes),
    Copy(CopySource),
    Edits(Vec<Edit>),
}

/// A write that was checked, for any number of hosts.
#[derive(Clone)]
struct PutPlan {
    path: RemotePath,
    content: PutContent,
    expected: Option<Digest>,
    options: PutOptions,
}

impl Service {
    /// Writes a file of a host, or of many at the same time. Each is written at once: readers see
    /// the old content or the new one. Dropping the future leaves the old files of the hosts that
    /// are not done.
    pub async fn put(&self, request: PutRequest) -> Result<PutReply, Error> {
        if let Some(replica) =
            self.replica_of_host(request.host.as_deref().unwrap_or_default()).await?
        {
            return self.perform_at(&replica, "put", &request).await;
        }
        if request.host.is_some() != request.hosts.is_empty() {
            return Err(Error::invalid(
                "give one of host and hosts",
                "host is one name, hosts is a list",
            ));
        }
        let becomes = parse_become(request.becomes.as_deref(), request.become_method.as_deref())?;
        let service = self.with_context(|context| context.becomes = becomes);
        if request.from.is_some() {
            // Before the source is read, which may take long.
            let words: Vec<String> = request.host.iter().chain(&request.hosts).cloned().collect();
            service.jobs.hosts_for_files(&words).await?;
        }
        let plan = Box::pin(self.plan(&request)).await?;
        match (&request.host, request.hosts.is_empty()) {
            (Some(host), true) => service.put_on(host, plan).await,
            (None, false) => service.put_on_many(request.hosts, plan).await,
            _ => unreachable!("one of them is given, as was checked above"),
        }
    }

    /// Checks a request, and then opens or copies its source.
    async fn plan(&self, request: &PutRequest) -> Result<PutPlan, Error> {
        let contents = [
            request.text.is_some(),
            request.base64.is_some(),
            request.from.is_some(),
            !request.edits.is_empty(),
        ];
        if contents.into_iter().filter(|is_given| *is_given).count() != 1 {
            return Err(Error::invalid(
                "give exactly one of text, base64, from and edits",
                "text or base64 is the whole content, edits change parts of it",
            ));
        }
        if request.recursive && !is_for_directories(request) {
            return Err(Error::invalid(
                "recursive can't be combined with mode, backup, in_place, if_sha256 or a content",
                "recursive needs from; a directory is copied with its modes",
            ));
        }
        // Before a host is asked for the content.
        let expected = match &request.if_sha256 {
            None => None,
            Some(text) => Some(text.parse::<Digest>().map_err(|error| {
                Error::invalid(
                    format!("if_sha256: {error}"),
                    "pass the sha256 that ssh_get returned",
                )
            })?),
        };
        let path = remote_path(request.path.as_bytes())?;
        let mode = request.mode.as_deref().map(parse_mode).transpose()?;
        let content = if let Some(text) = &request.text {
            PutContent::Whole(text.clone().into())
        } else if let Some(base64) = &request.base64 {
            let bytes = BASE64_STANDARD.decode(base64).map_err(|_| {
                Error::invalid(
                    "base64 is not valid",
                    "use the standard alphabet with padding",
                )
            })?;
            PutContent::Whole(bytes.into())
        } else if let Some(from) = &request.from {
            PutContent::Copy(self.copy_source(from, request.recursive).await?)
        } else {
            let edits = request.edits.iter().map(|edit| Edit {
                old: edit.old.clone(),
                new: edit.new.clone(),
            });
            PutContent::Edits(edits.collect())
        };
        Ok(PutPlan {
            path,
            content,
            expected,
            options: PutOptions {
                mode,
                parents: request.parents,
                backup: request.backup,
                in_place: request.in_place,
                expected: expected.map_or(ExpectedContent::Anything, ExpectedContent::Digest),
                ..PutOptions::default()
            },
        })
    }

    async fn put_on(&self, host: &str, plan: PutPlan) -> Result<PutReply, Error> {
        let PutPlan {
            path,
            content,
            expected,
            mut options,
        } = plan;
        if let PutContent::Copy(CopySource::Directory(directory)) = &content {
            return self.put_tree(host, &path, directory, options.parents).await;
        }
        let service = match &content {
            PutContent::Edits(_) => &self.editing(),
            PutContent::Whole(_) | PutContent::Copy(_) => self,
        };
        // A diff shows the old content.
        let may_read = self.jobs.may_read_files(host).await;
        let mut old_text = None;
        let source = match content {
            PutContent::Whole(bytes) => {
                let is_comparable =
                    str::from_utf8(&bytes).is_ok() && bytes.len() as u64 <= MOST_COMPARED;
                if is_comparable && may_read {
                    let at = HostPath { host, path: &path };
                    let files = self.jobs.files_to_change_at(at).await?;
                    old_text = text_of(&files, &path).await;
                }
                FileSource::Memory(bytes)
            }
            PutContent::Copy(CopySource::File(file, mode)) => {
                options.new_mode = Some(mode);
                FileSource::File(file)
            }
            PutContent::Copy(CopySource::Directory(_)) => unreachable!("it was copied above"),
            PutContent::Edits(edits) => {
                let at = HostPath { host, path: &path };
                let files = service.jobs.files_to_change_at(at).await?;
                let edited = edit(&files, &path, expected, &edits).await;
                let edited = edited.map_err(|error| {
                    about(host)(if may_read {
                        error
                    } else {
                        error.without_content()
                    })
                })?;
                // Refused if the file changes between this read and the write.
                options.expected = ExpectedContent::Digest(edited.old_digest);
                old_text = may_read.then_some(edited.old);
                FileSource::Memory(edited.new.into())
            }
        };
        let new = match &source {
            FileSource::Memory(bytes) => Some(bytes.clone()),
            FileSource::File(_) | FileSource::Stream(_) => None,
        };
        let path = HostPath { host, path: &path };
        let mut reply = service.put_content(path, source, &options).await?;
        let is_changed = reply.change.as_deref() == Some(CHANGED);
        reply.diff = match (&old_text, new.as_deref().map(str::from_utf8)) {
            (Some(old), Some(Ok(new))) if is_changed => Some(unified_diff(old, new)),
            _ => None,
        };
        Ok(reply)
    }

    /// Copies a directory with all that is in it.
    async fn put_tree(
        &self,
        host: &str,
        path: &RemotePath,
        directory: &SourceDirectory,
        parents: bool,
    ) -> Result<PutReply, Error> {
        let at = HostPath { host, path };
        if parents {
            let files = self.jobs.files_to_change_at(at).await?;
            let path = files.expand(path).await.map_err(about(host))?;
            files.make_directories(&path.parent()).await.map_err(about(host))?;
        }
        let progress = Arc::default();
        let local = directory.path();
        let report = self.jobs.put_tree(&local, at, TreeOptions::default(), &progress).await;
        let report = report.map_err(|error| Error::from(error).about(host))?;
        let tree = directory.copied(report);
        Ok(PutReply {
            path: path.to_string(),
            size: tree.bytes,
            failed: tree.failed > 0,
            tree: Some(tree),
            ..PutReply::default()
        })
    }

    /// Writes a content that arrives as it is written.
    ///
    /// # Errors
    /// As [`put`](Self::put).
    pub async fn put_content(
        &self,
        path: HostPath<'_>,
        content: FileSource,
        options: &PutOptions,
    ) -> Result<PutReply, Error> {
        let progress = TransferProgress::default();
        let put = self.jobs.put_file(path, content, options, &progress).await;
        let put = put.map_err(|error| Error::from(error).about(path.host))?;
        Ok(reply_of(&put))
    }

    async fn put_on_many(&self, hosts: Vec<String>, plan: PutPlan) -> Result<PutReply, Error> {
        let names = match &plan.content {
            PutContent::Edits(_) => self.jobs.editing().hosts_for_files(&hosts).await?,
            PutContent::Whole(_) | PutContent::Copy(_) => self.jobs.hosts_for_files(&hosts).await?,
        };
        let path = plan.path.to_string();
        let puts: Vec<_> = names
            .into_iter()
            .map(|host| {
                let plan = plan.clone();
                async move {
                    let result = match self.put_on(&host, plan).await {
                        Ok(PutReply {
                            tree: Some(tree), ..
                        }) if tree.failed > 0 => Err(format!(
                            "{} entries failed, first {}",
                            tree.failed,
                            tree.failures.first().map_or("", String::as_str)
                        )),
                        Ok(PutReply {
                            tree: Some(tree), ..
                        }) => Ok(format!("{} files written", tree.written)),
                        Ok(reply) => Ok(reply.change.unwrap_or_default()),
                        Err(error) => Err(error.to_string()),
                    };
                    (host, result)
                }
                .boxed()
            })
            .collect();
        let done: Vec<_> = stream::iter(puts).buffered(AT_A_TIME).collect().await;
        let failed = done.iter().any(|(_, result)| result.is_err());
        let groups = grouped(done);
        Ok(PutReply {
            path,
            failed,
            groups,
            ..PutReply::default()
        })
    }
}

/// Hosts by their result, failures last.
fn grouped(done: Vec<(String, Result<String, String>)>) -> Vec<PutGroup> {
    let mut groups: Vec<(Result<String, String>, Vec<String>)> = Vec::new();
    for (host, result) in done {
        match groups.iter_mut().find(|(known, _)| *known == result) {
            Some((_, hosts)) => hosts.push(host),
            None => groups.push((result, vec![host])),
        }
    }
    groups.sort_by_key(|(result, _)| result.is_err());
    let grouped = groups.into_iter().map(|(result, hosts)| PutGroup {
        count: hosts.len(),
        hosts: fold(hosts.iter().map(String::as_str)),
        result: result.unwrap_or_else(|error| error),
    });
    grouped.collect()
}

/// A text that was edited.
struct Edited {
    old: String,
    old_digest: Digest,
    new: String,
}

async fn edit(
    files: &HostFiles,
    path: &RemotePath,
    expected: Option<Digest>,
    edits: &[Edit],
) -> Result<Edited, FilesError> {
    let path = files.expand(path).await?;
    let old = files.read_whole(&path, MOST_EDITED).await?;
    let old_digest = Digest::of(&old);
    if expected.is_some_and(|expected| expected != old_digest) {
        return Err(FilesError::ChangedMeanwhile {
            path,
            found: Some(old_digest).into(),
        });
    }
    let failed = |source| FilesError::Edit {
        path: path.clone(),
        source,
    };
    let old = String::from_utf8(old.to_vec()).map_err(|_| failed(EditError::NotText))?;
    let new = apply(&old, edits).map_err(failed)?;
    Ok(Edited {
        old,
        old_digest,
        new,
    })
}

/// The text of a short file, to compare. `None` if it has none, or is not text.
async fn text_of(files: &HostFiles, path: &RemotePath) -> Option<String> {
    let path = files.expand(path).await.ok()?;
    let old = files.read_whole(&path, MOST_COMPARED).await.ok()?;
    String::from_utf8(old.to_vec()).ok()
}

/// The word for a file that had another content.
const CHANGED: &str = "changed";

/// Whether all arguments make sense for a directory.
fn is_for_directories(request: &PutRequest) -> bool {
    request.from.is_some()
        && request.mode.is_none()
        && request.if_sha256.is_none()
        && !request.backup
        && !request.in_place
}

fn reply_of(put: &Put) -> PutReply {
    let change = match put.change {
        FileChange::Created => "created",
        FileChange::Changed => CHANGED,
        FileChange::Unchanged => "unchanged",
    };
    PutReply {
        path: put.path.to_string(),
        change: Some(change.to_owned()),
        size: put.size,
        sha256: Some(put.digest.to_string()),
        verified: Some(verified_word(put.verified).to_owned()),
        backup: put.backup.as_ref().map(ToString::to_string),
        resumed_bytes: put.resumed_from,
        ..PutReply::default()
    }
}

/// Parses permissions in octal.
///
/// # Errors
/// Code `invalid_argument`.
pub fn parse_mode(text: &str) -> Result<u32, Error> {
    let digits = text.strip_prefix("0o").unwrap_or(text);
    match u32::from_str_radix(digits, 8) {
        Ok(mode) if mode <= 0o7777 => Ok(mode),
        Ok(_) | Err(_) => Err(Error::invalid(
            format!("mode: {text:?} is not octal permissions"),
            "write them as 0644 or 0755",
        )),
    }
}
