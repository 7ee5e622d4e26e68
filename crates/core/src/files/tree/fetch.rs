//! Copies the files of a host's directory that match patterns to this machine.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use futures_util::{FutureExt, StreamExt, stream};
use serde::{Deserialize, Serialize};

use super::put_tree::AT_A_TIME;
use crate::files::host_files::HostFiles;
use crate::files::pattern::FileNamePattern;
use crate::files::progress::TransferProgress;
use crate::files::sftp::{FileKind, SftpError};
use crate::files::{FilesError, GetOptions, Got, RemotePath, shown};
use sshjobs_job::FetchPattern;

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
    /// What was not copied and why, in words.
    pub failed: Vec<String>,
}

/// Maximum files of one fetch.
const MOST_FILES: usize = 100_000;
/// The pattern for any number of directories.
const ANY_DEPTH: &str = "**";

impl HostFiles {
    /// Copies the files below `directory` that match a pattern to the same places below `into`, each whole. Links to files
    /// below the directory are copied as those files; other links that a pattern finds are reported.
    ///
    /// # Errors
    /// If the directory can't be listed, or the connection is lost. Other failures are in the report.
    pub async fn fetch(
        &self,
        directory: &RemotePath,
        patterns: &[FetchPattern],
        into: &Path,
        progress: &TransferProgress,
    ) -> Result<FetchReport, FilesError> {
        let root = self.real_path(&self.expand(directory).await?).await?;
        let mut finding = Finding {
            files: self,
            root: &root,
            found: BTreeMap::new(),
            report: FetchReport::default(),
        };
        for pattern in patterns {
            finding.find(pattern).await?;
        }
        let Finding {
            found, mut report, ..
        } = finding;

        let gets = found.into_iter().map(|(below, file)| {
            let local = into.join(&below);
            async move {
                let got = self.fetch_one(&file.path, &local, progress).await;
                (shown(below.as_os_str().as_bytes()), got)
            }
            .boxed()
        });
        let mut gets = stream::iter(gets.collect::<Vec<_>>()).buffer_unordered(AT_A_TIME);
        while let Some((path, got)) = gets.next().await {
            match got {
                Ok(got) => report.files.push(FetchedFile {
                    path,
                    bytes: got.size,
                    sha256: got.digest.to_string(),
                }),
                Err(error) if error.is_lost_connection() => return Err(error),
                Err(error) => report.failed.push(format!("{path}: {}", with_cause(&error))),
            }
        }
        report.files.sort_by(|one, other| one.path.cmp(&other.path));
        report.failed.sort_unstable();
        Ok(report)
    }

    async fn fetch_one(
        &self,
        path: &RemotePath,
        local: &Path,
        progress: &TransferProgress,
    ) -> Result<Got, FilesError> {
        if let Some(parent) = local.parent() {
            fs::create_dir_all(parent).map_err(FilesError::local(parent))?;
        }
        self.get(path, local, GetOptions::default(), progress).await
    }
}

/// A file or directory of the host.
#[derive(Clone)]
struct FoundEntry {
    path: RemotePath,
    /// Its path below the root.
    below: PathBuf,
}

impl FoundEntry {
    fn join(&self, name: &[u8]) -> Self {
        Self {
            path: self.path.join(name),
            below: self.below.join(OsStr::from_bytes(name)),
        }
    }
}

/// A directory's entries, by kind.
#[derive(Default)]
struct Listed {
    directories: Vec<FoundEntry>,
    others: Vec<(FoundEntry, FileKind)>,
}

/// The search for files that match patterns.
struct Finding<'a> {
    files: &'a HostFiles,
    /// The directory, with all links resolved.
    root: &'a RemotePath,
    found: BTreeMap<PathBuf, FoundEntry>,
    report: FetchReport,
}

impl Finding<'_> {
    async fn find(&mut self, pattern: &FetchPattern) -> Result<(), FilesError> {
        let before = self.found.len() + self.report.failed.len();
        let names: Vec<&str> = pattern.names().collect();
        let root = FoundEntry {
            path: self.root.clone(),
            below: PathBuf::new(),
        };
        let mut directories = vec![root];
        let (last, above) = names.split_last().unwrap_or((&ANY_DEPTH, &[]));
        for name in above {
            directories = self.directories_named(directories, name).await?;
        }
        for directory in directories {
            self.add_named(directory, last).await?;
        }
        if before == self.found.len() + self.report.failed.len() {
            self.report.failed.push(format!("no file matches {pattern}"));
        }
        if self.found.len() > MOST_FILES {
            return Err(FilesError::TooManyMatches {
                pattern: RemotePath::new(pattern.to_string())?,
                most: MOST_FILES,
            });
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
        let mut named = Vec::new();
        for directory in above {
            if name == ANY_DEPTH {
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
        if name == ANY_DEPTH {
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
            Ok(Some(found)) => self.add(entry, found.kind()).await,
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
            FileKind::File => drop(self.found.insert(entry.below.clone(), entry)),
            FileKind::Symlink => match self.is_file_below_root(&entry).await {
                Ok(true) => drop(self.found.insert(entry.below.clone(), entry)),
                Ok(false) => self.skip(&entry, "a link to no file below the directory"),
                Err(error) => self.note(&entry, error)?,
            },
            FileKind::Directory | FileKind::Other => {
                self.skip(&entry, "neither a file nor a directory");
            }
        }
        Ok(())
    }

    /// Whether a link leads to a file below the root.
    async fn is_file_below_root(&self, link: &FoundEntry) -> Result<bool, FilesError> {
        let Some(found) = self.files.find(&link.path).await? else { return Ok(false) };
        let target = self.files.real_path(&link.path).await?;
        let root = self.root.join(b"");
        Ok(found.kind() == FileKind::File && target.as_bytes().starts_with(root.as_bytes()))
    }

    /// A directory, and all entries below it. Links are not followed.
    async fn walk(&mut self, directory: FoundEntry) -> Result<Listed, FilesError> {
        let mut all = Listed::default();
        let mut waiting = vec![directory];
        while let Some(directory) = waiting.pop() {
            let listed = self.list(&directory).await?;
            waiting.extend(listed.directories);
            all.others.extend(listed.others);
            all.directories.push(directory);
            if all.others.len() + waiting.len() > MOST_FILES {
                return Err(FilesError::TooManyMatches {
                    pattern: self.root.join(ANY_DEPTH.as_bytes()),
                    most: MOST_FILES,
                });
            }
        }
        Ok(all)
    }

    /// The entries of a directory. None if there is no such directory; one that can't be listed is reported.
    async fn list(&mut self, directory: &FoundEntry) -> Result<Listed, FilesError> {
        let mut listed = Listed::default();
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
            let found = directory.join(&entry.name);
            match entry.attributes.kind() {
                FileKind::Directory => listed.directories.push(found),
                kind => listed.others.push((found, kind)),
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
        let path = shown(entry.below.as_os_str().as_bytes());
        self.report.failed.push(format!("{path}: {why}"));
    }
}

/// The error with its cause, in words.
fn with_cause(error: &FilesError) -> String {
    match error {
        FilesError::Operation {
            source: source @ SftpError::Refused { .. },
            ..
        } => format!("{error}: {source}"),
        error => error.to_string(),
    }
}
