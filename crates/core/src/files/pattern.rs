//! Patterns of paths on a host: `*`, `?` and `[…]`, as in a shell.

use glob::{MatchOptions, Pattern};

use super::error::FilesError;
use super::host_files::HostFiles;
use super::path::RemotePath;
use super::sftp::{Attributes, FileKind, SftpError};

/// A path that matches a pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Matched {
    /// The path.
    pub path: RemotePath,
    /// Its attributes, without following a symbolic link.
    pub attributes: Attributes,
}

/// As in a shell: `*` matches neither a slash nor a leading point.
const OPTIONS: MatchOptions = MatchOptions {
    case_sensitive: true,
    require_literal_separator: true,
    require_literal_leading_dot: true,
};
/// Maximum paths that a pattern may match.
const MOST_MATCHES: usize = 100_000;

impl RemotePath {
    /// Whether it has characters of a pattern. A file may have such a name, too.
    pub fn is_pattern(&self) -> bool {
        is_pattern(self.as_bytes())
    }
}

fn is_pattern(name: &[u8]) -> bool {
    name.iter().any(|byte| b"*?[".contains(byte))
}

/// Bytes as the characters with the same numbers, so that a pattern of text matches any bytes.
fn as_latin1(bytes: &[u8]) -> String {
    bytes.iter().copied().map(char::from).collect()
}

/// A name with characters of a pattern.
pub(super) struct FileNamePattern(Pattern);

impl FileNamePattern {
    /// `None` if it is an ordinary name, also if it is an invalid pattern, such as `[`.
    pub(super) fn parse(name: &[u8]) -> Option<Self> {
        if !is_pattern(name) {
            return None;
        }
        Pattern::new(&as_latin1(name)).ok().map(Self)
    }

    pub(super) fn matches(&self, name: &[u8]) -> bool {
        self.0.matches_with(&as_latin1(name), OPTIONS)
    }
}

impl HostFiles {
    /// The paths that match a pattern, in order.
    ///
    /// # Errors
    /// [`FilesError::NoMatch`].
    pub async fn matching(&self, pattern: &RemotePath) -> Result<Vec<Matched>, FilesError> {
        let mut found: Vec<Option<RemotePath>> = vec![None];
        if pattern.as_bytes().starts_with(b"/") {
            found = vec![Some(RemotePath::new("/")?)];
        }
        let names = pattern.as_bytes().split(|byte| *byte == b'/');
        for name in names.filter(|name| !name.is_empty()) {
            found = self.next_names(found, name, pattern).await?;
        }
        let mut matched = Vec::new();
        for path in found.into_iter().flatten() {
            match self.lstat(&path).await {
                Ok(attributes) => matched.push(Matched { path, attributes }),
                // It has gone meanwhile, or was never there because its last name is not a pattern.
                Err(FilesError::Operation {
                    source: SftpError::Refused { .. },
                    ..
                }) => {}
                Err(error) => return Err(error),
            }
        }
        if matched.is_empty() {
            return Err(FilesError::NoMatch(pattern.clone()));
        }
        Ok(matched)
    }

    /// The paths below `found` with names that match. `None` stands for the home directory.
    async fn next_names(
        &self,
        found: Vec<Option<RemotePath>>,
        name: &[u8],
        pattern: &RemotePath,
    ) -> Result<Vec<Option<RemotePath>>, FilesError> {
        let mut next = Vec::new();
        let Some(wanted) = FileNamePattern::parse(name) else {
            for directory in &found {
                next.push(Some(below(directory, name)?));
            }
            return Ok(next);
        };
        let home = RemotePath::new(".")?;
        for directory in &found {
            let listed = match self.list(directory.as_ref().unwrap_or(&home)).await {
                Ok(listed) => listed,
                // A shell also skips what it can't list.
                Err(FilesError::Operation {
                    source: SftpError::Refused { .. },
                    ..
                }) => continue,
                Err(error) => return Err(error),
            };
            for entry in listed {
                if wanted.matches(&entry.name) {
                    next.push(Some(below(directory, &entry.name)?));
                }
            }
            if next.len() > MOST_MATCHES {
                return Err(FilesError::TooManyMatches {
                    pattern: pattern.clone(),
                    most: MOST_MATCHES,
                });
            }
        }
        Ok(next)
    }

    /// The paths that a word of a command line stands for: itself if there is such a file,
    /// otherwise the matches of the pattern.
    pub async fn named(&self, word: &RemotePath) -> Result<Vec<Matched>, FilesError> {
        let path = self.expand(word).await?;
        match self.lstat(&path).await {
            Err(error) if error.is_no_such_file() && path.is_pattern() => {
                self.matching(&path).await
            }
            found => Ok(vec![Matched {
                // A link at the end of the word is followed, as by cp.
                attributes: match found?.kind() {
                    FileKind::Symlink => self.stat(&path).await?,
                    FileKind::File | FileKind::Directory | FileKind::Other => {
                        self.lstat(&path).await?
                    }
                },
                path,
            }]),
        }
    }
}

/// Joins a name to a directory; `None` is the home directory.
fn below(directory: &Option<RemotePath>, name: &[u8]) -> Result<RemotePath, FilesError> {
    match directory {
        Some(directory) => Ok(directory.join(name)),
        None => Ok(RemotePath::new(name.to_vec())?),
    }
}
