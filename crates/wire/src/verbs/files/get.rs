//! The verb get: a file of a host, or the entries of a directory.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use futures_util::StreamExt;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::copy::{CopiedTree, kind_at};
use super::file_paths::{about, remote_path};
use crate::Service;
use crate::error::Error;
use crate::file_lines::FileLines;
use crate::leave_out::is_false;
use crate::verbs::command::parse_become;
use crate::verbs::read::Encoding;
use sshjobs_core::jobs::{
    Attributes, Digest, FileKind, FilesError, GetOptions, HostFiles, HostPath, RemotePath,
    TransferProgress, TreeOptions, Verified, shown,
};

/// Read a file of a host, or list a directory.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetRequest {
    /// Host from ssh_hosts.
    pub host: String,
    /// File, directory or pattern (*.log).
    pub path: String,
    /// Unit of offset and length.
    #[serde(default)]
    pub unit: FileUnit,
    /// Amount to skip; negative counts from the end.
    #[serde(default)]
    pub offset: i64,
    /// Amount to return. Default: all that fits.
    #[serde(default)]
    #[schemars(range(min = 0))]
    pub length: Option<u64>,
    /// Maximum bytes to return. Default 32768.
    #[serde(default)]
    #[schemars(range(min = 1, max = 262_144))]
    pub max_bytes: Option<u64>,
    /// base64: the exact bytes.
    #[serde(default)]
    pub encoding: Encoding,
    /// As this user, such as root.
    #[serde(default, rename = "become")]
    pub becomes: Option<String>,
    /// sudo, doas or su. Default sudo.
    #[serde(default)]
    pub become_method: Option<String>,
    /// Copy the file or directory to this path of the server's machine.
    #[serde(default)]
    #[schemars(with = "String")]
    pub to: Option<PathBuf>,
}

/// Unit of positions in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum FileUnit {
    /// Lines, each with its newline.
    #[default]
    Lines,
    /// Bytes.
    Bytes,
}

/// A file, or the entries of a directory.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct GetReply {
    /// What the path is: file, directory, symlink, other, or pattern.
    pub kind: String,
    /// Size in bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Permissions, such as 0644.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Owner and group by number, such as 0:0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Time of the last change (ISO 8601, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<String>,
    /// SHA-256 of the content, if all of it was read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Content, in the requested encoding.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Whether bytes that are not UTF-8 were replaced in the content.
    #[serde(default, skip_serializing_if = "is_false")]
    pub lossy: bool,
    /// Start of the content, in the unit; also of a request that counts from the end.
    #[serde(default)]
    pub offset: u64,
    /// Amount in this reply; offset + returned is the start of the next part.
    #[serde(default)]
    pub returned: u64,
    /// Whether there is more after this part.
    pub has_more: bool,
    /// Entries of the directory, or matches of the pattern.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entries: Vec<FileEntry>,
    /// What was copied of a directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<CopiedTree>,
    /// How a copied file was verified: sha256, read_back or unverified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verified: Option<String>,
}

/// An entry of a directory.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct FileEntry {
    /// Its name; of a match, its path.
    pub name: String,
    /// What it is: file, directory, symlink or other.
    pub kind: String,
    /// Size of a file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<u64>,
    /// Permissions, such as 0644.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Time of the last change (ISO 8601, UTC).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<String>,
}

/// Maximum bytes of content in a reply.
const MOST_BYTES: u64 = 262_144;
/// Maximum bytes of a file that is searched for lines.
const MOST_SEARCHED: u64 = 256 << 20;
/// Bytes that an entry takes in a reply, at least.
const ENTRY_BYTES: u64 = 64;

/// The requested part of a file.
struct FilePart {
    unit: FileUnit,
    offset: i64,
    length: u64,
    max_bytes: u64,
}

impl Service {
    /// Reads a part of a file, lists a directory or the matches of a pattern, or copies a file to
    /// this machine.
    pub async fn get(&self, request: GetRequest) -> Result<GetReply, Error> {
        if let Some(replica) = self.replica_of_host(&request.host).await? {
            return self.perform_at(&replica, "get", &request).await;
        }
        let path = remote_path(request.path.as_bytes())?;
        let becomes = parse_become(request.becomes.as_deref(), request.become_method.as_deref())?;
        let service = self.with_context(|context| context.becomes = becomes);
        if let Some(to) = &request.to {
            return service.get_to(&request, &path, to).await;
        }
        let max_bytes = request.max_bytes.unwrap_or_else(|| self.defaults().max_bytes.into());
        if !(1..=MOST_BYTES).contains(&max_bytes) {
            return Err(Error::invalid(
                format!("max_bytes must be 1 to {MOST_BYTES}"),
                "read a longer file in parts, with offset; or copy it with `sshjobs get`",
            ));
        }
        let part = FilePart {
            unit: request.unit,
            offset: request.offset,
            length: request.length.unwrap_or(u64::MAX),
            max_bytes,
        };

        let at = HostPath {
            host: &request.host,
            path: &path,
        };
        let files = service.jobs.files_at(at).await?;
        let path = files.expand(&path).await.map_err(about(&request.host))?;
        let found = files.find(&path).await.map_err(about(&request.host))?;
        let reply = match found {
            Some(found) if found.kind() == FileKind::Directory => {
                list(&files, &path, &found, &part).await
            }
            Some(found) if found.kind() == FileKind::File => {
                read(&files, &path, &found, &part, request.encoding).await
            }
            Some(found) => Ok(described(&found)),
            None if path.is_pattern() => matches(&files, &path, &part).await,
            None => files.stat(&path).await.map(|found| described(&found)),
        };
        reply.map_err(about(&request.host))
    }

    /// Copies a file or a directory to this machine.
    async fn get_to(
        &self,
        request: &GetRequest,
        path: &RemotePath,
        to: &std::path::Path,
    ) -> Result<GetReply, Error> {
        let place = self.transfer_place(to)?;
        let at = HostPath {
            host: &request.host,
            path,
        };
        if kind_at(&self.jobs, at).await? == FileKind::Directory {
            place.lock_root().await?;
            let progress = Arc::default();
            let local = place.path();
            let options = TreeOptions::default();
            let report = self.jobs.get_tree(at, &local, options, &progress).await?;
            return Ok(GetReply {
                kind: kind_word(FileKind::Directory).to_owned(),
                tree: Some(CopiedTree::of(report, &local, &to.display().to_string())),
                ..GetReply::default()
            });
        }
        let progress = TransferProgress::default();
        let options = GetOptions::default();
        let got = self.jobs.get_file(at, &place.path(), options, &progress).await?;
        Ok(GetReply {
            kind: kind_word(FileKind::File).to_owned(),
            size: Some(got.size),
            sha256: Some(got.digest.to_string()),
            verified: Some(verified_word(got.verified).to_owned()),
            returned: got.size,
            ..GetReply::default()
        })
    }
}

pub(in crate::verbs) fn verified_word(verified: Verified) -> &'static str {
    match verified {
        Verified::BySha256 => "sha256",
        Verified::ByReadingBack => "read_back",
        Verified::Not => "unverified",
    }
}

fn kind_word(kind: FileKind) -> &'static str {
    match kind {
        FileKind::File => "file",
        FileKind::Directory => "directory",
        FileKind::Symlink => "symlink",
        FileKind::Other => "other",
    }
}

fn mode_text(attributes: &Attributes) -> Option<String> {
    attributes.permissions().map(|mode| format!("{mode:04o}"))
}

fn modified_text(attributes: &Attributes) -> Option<String> {
    let modified = attributes.times?.modified;
    let time = SystemTime::UNIX_EPOCH + Duration::from_secs(modified.into());
    Some(humantime::format_rfc3339_seconds(time).to_string())
}

/// The size of a regular file.
fn size_of_file(attributes: &Attributes) -> Option<u64> {
    if attributes.kind() == FileKind::File {
        attributes.size
    } else {
        None
    }
}

/// The attributes of a path, without content.
fn described(attributes: &Attributes) -> GetReply {
    GetReply {
        kind: kind_word(attributes.kind()).to_owned(),
        size: size_of_file(attributes),
        mode: mode_text(attributes),
        owner: attributes.owner.map(|owner| format!("{}:{}", owner.uid, owner.gid)),
        modified: modified_text(attributes),
        ..GetReply::default()
    }
}

fn entry(name: String, attributes: &Attributes) -> FileEntry {
    let kind = attributes.kind();
    FileEntry {
        name,
        kind: kind_word(kind).to_owned(),
        size: size_of_file(attributes),
        mode: mode_text(attributes),
        modified: modified_text(attributes),
    }
}

async fn list(
    files: &HostFiles,
    path: &RemotePath,
    found: &Attributes,
    part: &FilePart,
) -> Result<GetReply, FilesError> {
    let entries = files.list(path).await?;
    let entries = entries.iter().map(|found| entry(shown(&found.name), &found.attributes));
    Ok(with_entries(described(found), entries.collect(), part))
}

async fn matches(
    files: &HostFiles,
    pattern: &RemotePath,
    part: &FilePart,
) -> Result<GetReply, FilesError> {
    let found = files.matching(pattern).await?;
    let entries = found.iter().map(|found| entry(found.path.to_string(), &found.attributes));
    let reply = GetReply {
        kind: "pattern".to_owned(),
        ..GetReply::default()
    };
    Ok(with_entries(reply, entries.collect(), part))
}

/// The requested entries, as many as fit.
fn with_entries(reply: GetReply, all: Vec<FileEntry>, part: &FilePart) -> GetReply {
    let total = all.len() as u64;
    let offset = position(part.offset, total);
    let mut left = part.max_bytes;
    let mut entries = Vec::new();
    let wanted = all.into_iter().skip(usize::try_from(offset).unwrap_or(usize::MAX));
    for entry in wanted.take(usize::try_from(part.length).unwrap_or(usize::MAX)) {
        let bytes = ENTRY_BYTES + entry.name.len() as u64;
        if bytes > left && !entries.is_empty() {
            break;
        }
        left = left.saturating_sub(bytes);
        entries.push(entry);
    }
    let returned = entries.len() as u64;
    GetReply {
        offset,
        returned,
        has_more: offset + returned < total,
        entries,
        ..reply
    }
}

/// A position from the start. A negative offset counts from the end.
fn position(offset: i64, total: u64) -> u64 {
    if offset < 0 {
        total.saturating_sub(offset.unsigned_abs())
    } else {
        offset.unsigned_abs().min(total)
    }
}

async fn read(
    files: &HostFiles,
    path: &RemotePath,
    found: &Attributes,
    part: &FilePart,
    encoding: Encoding,
) -> Result<GetReply, FilesError> {
    let read = match part.unit {
        FileUnit::Bytes => read_bytes(files, path, found, part).await?,
        FileUnit::Lines => read_lines(files, path, found, part).await?,
    };
    let is_whole = read.is_from_start && !read.has_more;
    let content = match encoding {
        Encoding::Base64 => BASE64_STANDARD.encode(&read.bytes),
        Encoding::Utf8 => String::from_utf8_lossy(&read.bytes).into_owned(),
    };
    Ok(GetReply {
        sha256: is_whole.then(|| Digest::of(&read.bytes).to_string()),
        lossy: encoding == Encoding::Utf8 && str::from_utf8(&read.bytes).is_err(),
        content: Some(content),
        offset: read.offset,
        returned: read.returned,
        has_more: read.has_more,
        ..described(found)
    })
}

/// A part of a file that was read.
struct ReadPart {
    bytes: Vec<u8>,
    /// Start and amount, in the unit of the request.
    offset: u64,
    returned: u64,
    is_from_start: bool,
    has_more: bool,
}

async fn read_bytes(
    files: &HostFiles,
    path: &RemotePath,
    found: &Attributes,
    part: &FilePart,
) -> Result<ReadPart, FilesError> {
    let offset = position(part.offset, found.size.unwrap_or(0));
    let piece = files.read_piece(path, offset, part.length.min(part.max_bytes)).await?;
    Ok(ReadPart {
        bytes: piece.bytes.to_vec(),
        offset,
        returned: piece.bytes.len() as u64,
        is_from_start: offset == 0,
        has_more: piece.has_more,
    })
}

/// Reads lines. The file is read from its start, because only that tells the numbers of its lines.
async fn read_lines(
    files: &HostFiles,
    path: &RemotePath,
    found: &Attributes,
    part: &FilePart,
) -> Result<ReadPart, FilesError> {
    let size = found.size.unwrap_or(0);
    let too_long = || FilesError::TooLong {
        path: path.clone(),
        size,
        most: MOST_SEARCHED,
    };
    if part.offset < 0 && size > MOST_SEARCHED {
        return Err(too_long());
    }
    let mut lines = FileLines::new(part.offset, part.length, part.max_bytes);
    let mut pieces = files.pieces(path, 0, Some(MOST_SEARCHED)).await?;
    let mut read = 0;
    while let Some(piece) = pieces.next().await {
        let piece = piece?;
        read += piece.len() as u64;
        lines.push(&piece);
        if lines.is_complete() {
            break;
        }
    }
    if read >= MOST_SEARCHED && !lines.is_complete() {
        return Err(too_long());
    }
    let found = lines.finish();
    Ok(ReadPart {
        bytes: found.bytes,
        offset: found.offset,
        returned: found.returned,
        is_from_start: found.offset == 0,
        has_more: found.has_more,
    })
}
