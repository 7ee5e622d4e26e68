//! Copies the files of a host's directory that match patterns to this machine.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use futures_util::{FutureExt, StreamExt, stream};
use serde::{Deserialize, Serialize};

use super::put_tree::AT_A_TIME;
use super::sync::{MANIFEST, MOST_MANIFEST};
use crate::files::host_files::HostFiles;
use crate::files::pattern::FileNamePattern;
use crate::files::progress::TransferProgress;
use crate::files::sftp::{FileKind, SftpError};
use crate::files::{FilesError, GetOptions, Got, RemotePath, Verified, shown};
use sshjobs_job::FetchPattern;
use sshjobs_tree::{FileFacts, Manifest, SYNC_DIRECTORY};

/// A file that was copied from a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchedFile {
    /// Its path below the directory. Bytes that are not UTF-8 are escaped.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Its digest, as hexadecimal digits.
    pub sha256: String,
}

/// The files that a fetch has copied, and those that it could not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchReport {
    /// The copied files, by path.
    pub files: Vec<FetchedFile>,
    /// Files that were not copied, and why, in words.
    pub failed: Vec<String>,
}

/// Maximum files of one fetch.
const MOST_FILES: usize = 100_000;
/// Maximum failures that are listed. The others are counted.
const MOST_TOLD: usize = 100;
/// Bytes of a path that are looked into: a hostile host could list directories in directories without end.
const DEEPEST: usize = 4096;

/// Size up to which files are verified together, in one command.
const SMALL: u64 = 1 << 20;

/// The files of a directory to copy.
#[derive(Clone, Copy)]
pub struct FilesToFetch<'a> {
    /// The directory.
    pub directory: &'a RemotePath,
    /// Which files.
    pub patterns: &'a [FetchPattern],
    /// The tree that was synced there, if any. Files that are still as the sync has left them are not copied back.
    pub tree: Option<&'a RemotePath>,
}

impl HostFiles {
    /// Copies files of a directory to the same places below `into`, each whole. A link that a pattern names is followed. One
    /// that a wildcard finds is copied as its file if that is below the directory.
    ///
    /// # Errors
    /// If the directory can't be listed, or the connection is lost. Other failures are in the report.
    pub async fn fetch(
        &self,
        wanted: FilesToFetch<'_>,
        into: &Path,
        progress: &TransferProgress,
    ) -> Result<FetchReport, FilesError> {
        let root = self.real_path(&self.expand(wanted.directory).await?).await?;
        let mut search = FileSearch {
            files: self,
            root: &root,
            sent: self.sent(&root, wanted.tree).await?,
            found: BTreeMap::new(),
            has_matched: false,
            report: FetchReport::default(),
        };
        for pattern in wanted.patterns {
            search.find(pattern).await?;
        }
        let FileSearch {
            found, mut report, ..
        } = search;

        let gets = found.into_iter().map(|(below, file)| {
            async move {
                let is_small = file.size.is_some_and(|size| size <= SMALL);
                let options = GetOptions {
                    skip_comparison: is_small,
                    skip_digest: is_small,
                    ..GetOptions::default()
                };
                let got = self.fetch_one(&file.path, &into.join(&below), options, progress).await;
                (below, file, got)
            }
            .boxed()
        });
        let mut gets = stream::iter(gets.collect::<Vec<_>>()).buffer_unordered(AT_A_TIME);
        let mut unverified = Vec::new();
        while let Some((below, file, got)) = gets.next().await {
            match got {
                Ok(got) if got.verified == Verified::Not => unverified.push((below, file, got)),
                got => report.note(&below, got)?,
            }
        }
        for (below, got) in self.verified(&root, unverified, into, progress).await {
            report.note(&below, got)?;
        }
        report.files.sort_by(|one, other| one.path.cmp(&other.path));
        report.failed.sort_unstable();
        let untold = report.failed.len().saturating_sub(MOST_TOLD);
        report.failed.truncate(MOST_TOLD);
        if untold > 0 {
            report.failed.push(format!("and {untold} more"));
        }
        Ok(report)
    }

    /// Compares files that were copied with those of the host, and copies those again that differ: they were written to meanwhile.
    async fn verified(
        &self,
        root: &RemotePath,
        copied: Vec<(PathBuf, FoundEntry, Got)>,
        into: &Path,
        progress: &TransferProgress,
    ) -> Vec<(PathBuf, Result<Got, FilesError>)> {
        let paths: Vec<PathBuf> = copied.iter().map(|(below, ..)| below.clone()).collect();
        let on_host = self.digests_below(root, &paths).await;
        let mut verified = Vec::new();
        for (index, (below, file, got)) in copied.into_iter().enumerate() {
            // A host without a tool for it is believed, as for one file.
            let digest = on_host.as_ref().and_then(|digests| digests.get(index));
            let got = if digest.is_none_or(|digest| *digest == got.digest) {
                Ok(got)
            } else {
                let options = GetOptions::default();
                self.fetch_one(&file.path, &into.join(&below), options, progress).await
            };
            verified.push((below, got));
        }
        verified
    }

    async fn fetch_one(
        &self,
        path: &RemotePath,
        local: &Path,
        options: GetOptions,
        progress: &TransferProgress,
    ) -> Result<Got, FilesError> {
        if let Some(parent) = local.parent() {
            fs::create_dir_all(parent).map_err(FilesError::local(parent))?;
        }
        self.get(path, local, options, progress).await
    }

    /// The files below `root` that a sync has sent to the tree, by their paths below `root`.
    async fn sent(
        &self,
        root: &RemotePath,
        tree: Option<&RemotePath>,
    ) -> Result<BTreeMap<PathBuf, FileFacts>, FilesError> {
        let Some(tree) = tree else { return Ok(BTreeMap::new()) };
        let tree = self.real_path(&self.expand(tree).await?).await?;
        let above = tree.join(b"");
        let inside = match root.join(b"").as_bytes().strip_prefix(above.as_bytes()) {
            Some(inside) => PathBuf::from(OsStr::from_bytes(inside)),
            None => return Ok(BTreeMap::new()),
        };
        let list = tree.join(SYNC_DIRECTORY.as_bytes()).join(MANIFEST.as_bytes());
        let text = match self.read_whole(&list, MOST_MANIFEST).await {
            // Somebody has removed it. Every file then counts as the job's own.
            Err(error) if error.is_no_such_file() => return Ok(BTreeMap::new()),
            read => read?,
        };
        let manifest = Manifest::parse(&text).map_err(|_| {
            FilesError::on("read", &list)(SftpError::Protocol("it is not the list of a sync"))
        })?;
        let sent = manifest.files.into_iter().filter_map(|(path, file)| {
            let below = path.strip_prefix(&inside).ok()?.to_owned();
            Some((below, file.facts))
        });
        Ok(sent.collect())
    }
}

impl FetchReport {
    /// Notes a file, or why it was not copied.
    fn note(&mut self, below: &Path, got: Result<Got, FilesError>) -> Result<(), FilesError> {
        let path = shown(below.as_os_str().as_bytes());
        match got {
            Ok(got) => self.files.push(FetchedFile {
                path,
                bytes: got.size,
                sha256: got.digest.to_string(),
            }),
            Err(error) if error.is_lost_connection() => return Err(error),
            Err(error) => self.failed.push(format!("{path}: {}", with_cause(&error))),
        }
        Ok(())
    }
}

/// A file or directory of the host.
#[derive(Clone)]
struct FoundEntry {
    path: RemotePath,
    /// Its path below the root.
    below: PathBuf,
    /// Its size and the time of its last change in seconds since 1970, if they are known.
    size: Option<u64>,
    modified: Option<u32>,
}

impl FoundEntry {
    fn join(&self, name: &[u8]) -> Self {
        Self {
            path: self.path.join(name),
            below: self.below.join(OsStr::from_bytes(name)),
            size: None,
            modified: None,
        }
    }
}

/// A directory's entries, by kind.
#[derive(Default)]
struct DirectoryListing {
    directories: Vec<FoundEntry>,
    others: Vec<(FoundEntry, FileKind)>,
}

/// The search for files that match patterns.
struct FileSearch<'a> {
    files: &'a HostFiles,
    /// The directory, with all links resolved.
    root: &'a RemotePath,
    found: BTreeMap<PathBuf, FoundEntry>,
    /// Files that a sync has sent, by their paths below the root.
    sent: BTreeMap<PathBuf, FileFacts>,
    /// Whether the pattern that is looked for has matched something.
    has_matched: bool,
    report: FetchReport,
}

impl FileSearch<'_> {
    async fn find(&mut self, pattern: &FetchPattern) -> Result<(), FilesError> {
        let names = pattern.names();
        let root = FoundEntry {
            path: self.root.clone(),
            below: PathBuf::new(),
            size: None,
            modified: None,
        };
        let mut directories = vec![root];
        let (last, above) = names.split_last().unwrap_or((&FetchPattern::ANY_DEPTH, &[]));
        for name in above {
            directories = self.directories_named(directories, name).await?;
        }
        self.has_matched = false;
        for directory in directories {
            self.add_named(directory, last).await?;
        }
        if !self.has_matched {
            self.report.failed.push(format!("no file matches {pattern}"));
        }
        Ok(())
    }

    /// The directories below others that one name of a pattern stands for.
    async fn directories_named(
        &mut self,
        above: Vec<FoundEntry>,
        name: &str,
    ) -> Result<Vec<FoundEntry>, FilesError> {
        let wanted = FileNamePattern::parse(name.as_bytes());
        let mut named: Vec<FoundEntry> = Vec::new();
        for directory in above {
            self.check_number(named.len())?;
            if name == FetchPattern::ANY_DEPTH {
                named.extend(self.walk(directory).await?.directories);
                continue;
            }
            let Some(wanted) = &wanted else {
                // Also through a link, because the caller has named it.
                named.push(directory.join(name.as_bytes()));
                continue;
            };
            let listed = self.list(&directory).await?;
            let matching = |entry: &FoundEntry| wanted.matches(entry.path.name());
            named.extend(listed.directories.into_iter().filter(matching));
        }
        Ok(named)
    }

    /// Adds the files in a directory that the last name of a pattern stands for.
    async fn add_named(&mut self, directory: FoundEntry, name: &str) -> Result<(), FilesError> {
        if name == FetchPattern::ANY_DEPTH {
            return self.add_all(directory).await;
        }
        let Some(wanted) = FileNamePattern::parse(name.as_bytes()) else {
            return self.add_one(directory.join(name.as_bytes())).await;
        };
        let listed = self.list(&directory).await?;
        let matching = |entry: &FoundEntry| wanted.matches(entry.path.name());
        for (entry, kind) in listed.others {
            if matching(&entry) {
                self.add(entry, kind).await?;
            }
        }
        for entry in listed.directories.into_iter().filter(matching) {
            self.add_all(entry).await?;
        }
        Ok(())
    }

    /// Adds the file or directory that a pattern names.
    async fn add_one(&mut self, entry: FoundEntry) -> Result<(), FilesError> {
        match self.files.find(&entry.path).await {
            Ok(Some(found)) if found.kind() == FileKind::Directory => self.add_all(entry).await,
            // A link at its end is followed, because the caller has named it.
            Ok(Some(found)) => {
                let entry = FoundEntry {
                    size: found.size,
                    modified: found.times.map(|times| times.modified),
                    ..entry
                };
                self.add(entry, found.kind()).await
            }
            Ok(None) => Ok(()),
            Err(error) => self.note(&entry, error),
        }
    }

    /// Adds all files in a directory.
    async fn add_all(&mut self, directory: FoundEntry) -> Result<(), FilesError> {
        for (entry, kind) in self.walk(directory).await?.others {
            self.add(entry, kind).await?;
        }
        Ok(())
    }

    async fn add(&mut self, entry: FoundEntry, kind: FileKind) -> Result<(), FilesError> {
        match kind {
            FileKind::File => self.take(entry)?,
            FileKind::Symlink => match self.below_root(&entry).await {
                Ok(Some(FileKind::File)) => self.take(FoundEntry {
                    size: None,
                    ..entry
                })?,
                // Its files are found by their own names.
                Ok(Some(FileKind::Directory)) => {}
                Ok(Some(_) | None) => self.skip(&entry, "a link that leads out, or to nothing"),
                Err(error) => self.note(&entry, error)?,
            },
            FileKind::Directory | FileKind::Other => {
                self.skip(&entry, "neither a file nor a directory");
            }
        }
        Ok(())
    }

    fn take(&mut self, entry: FoundEntry) -> Result<(), FilesError> {
        self.has_matched = true;
        let is_as_sent = self.sent.get(&entry.below).is_some_and(|sent| {
            entry.size == Some(sent.size) && entry.modified.map(i64::from) == Some(sent.modified)
        });
        if !is_as_sent {
            self.found.insert(entry.below.clone(), entry);
        }
        self.check_number(self.found.len())
    }

    fn check_number(&self, number: usize) -> Result<(), FilesError> {
        if number <= MOST_FILES {
            return Ok(());
        }
        Err(FilesError::TooManyMatches {
            pattern: self.root.join(FetchPattern::ANY_DEPTH.as_bytes()),
            most: MOST_FILES,
        })
    }

    /// The kind of a link's target below the root. `None` if the link leads elsewhere, or to nothing.
    async fn below_root(&self, link: &FoundEntry) -> Result<Option<FileKind>, FilesError> {
        let Some(found) = self.files.find(&link.path).await? else { return Ok(None) };
        let target = self.files.real_path(&link.path).await?;
        let root = self.root.join(b"");
        // With a slash, because a link may lead to the root itself.
        let is_below = target.join(b"").as_bytes().starts_with(root.as_bytes());
        Ok(is_below.then(|| found.kind()))
    }

    /// A directory, and all entries below it. Links are not followed.
    async fn walk(&mut self, directory: FoundEntry) -> Result<DirectoryListing, FilesError> {
        let mut all = DirectoryListing::default();
        let mut waiting = vec![directory];
        while let Some(directory) = waiting.pop() {
            let listed = self.list(&directory).await?;
            waiting.extend(listed.directories);
            all.others.extend(listed.others);
            all.directories.push(directory);
            self.check_number(all.others.len() + all.directories.len() + waiting.len())?;
        }
        Ok(all)
    }

    /// The entries of a directory, empty if there is none. One that can't be listed is reported.
    async fn list(&mut self, directory: &FoundEntry) -> Result<DirectoryListing, FilesError> {
        let mut listed = DirectoryListing::default();
        if directory.path.as_bytes().len() > DEEPEST {
            self.skip(directory, "its path is too long");
            return Ok(listed);
        }
        let entries = match self.files.list(&directory.path).await {
            Ok(entries) => entries,
            Err(error) if error.is_no_such_file() && directory.path != *self.root => {
                return Ok(listed);
            }
            Err(error) => {
                self.note(directory, error)?;
                return Ok(listed);
            }
        };
        for entry in entries {
            if entry.name == SYNC_DIRECTORY.as_bytes() {
                continue;
            }
            let found = FoundEntry {
                size: entry.attributes.size,
                modified: entry.attributes.times.map(|times| times.modified),
                ..directory.join(&entry.name)
            };
            match entry.attributes.kind() {
                FileKind::Directory => listed.directories.push(found),
                kind @ (FileKind::File | FileKind::Symlink | FileKind::Other) => {
                    listed.others.push((found, kind));
                }
            }
        }
        Ok(listed)
    }

    /// Reports a failure. One of the connection, or of the root, ends the search.
    fn note(&mut self, entry: &FoundEntry, error: FilesError) -> Result<(), FilesError> {
        let is_root = entry.path == *self.root;
        if is_root || error.is_lost_connection() {
            return Err(error);
        }
        self.skip(entry, &with_cause(&error));
        Ok(())
    }

    fn skip(&mut self, entry: &FoundEntry, why: &str) {
        self.has_matched = true;
        let path = shown(entry.below.as_os_str().as_bytes());
        self.report.failed.push(format!("{path}: {why}"));
    }
}

/// The error with its cause, in words.
fn with_cause(error: &FilesError) -> String {
    if let FilesError::Operation {
        source: source @ SftpError::Refused { .. },
        ..
    } = error
    {
        return format!("{error}: {source}");
    }
    error.to_string()
}
