//! The file of tokens: replaced as a whole under a lock, and read again when it changes.

use std::fs::{DirBuilder, File, Metadata, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use super::token::TokenHash;
use super::{Token, TokenEntry};
use crate::jobs::{Caller, Rights};
use crate::lock::lock;

/// The file of tokens, `tokens.json` in the state directory. Only its owner may read it.
pub struct Tokens {
    file: PathBuf,
    read: Mutex<Option<(Stamp, Arc<[TokenEntry]>)>>,
}

/// Inode, seconds and nanoseconds of ctime, and size. They identify a version of the file, because
/// each change creates a new file.
type Stamp = (u64, i64, i64, u64);

/// Why a token is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// It does not exist, or was revoked.
    #[error("the token is not known")]
    Unknown,
    /// It has expired.
    #[error("the token has expired")]
    Expired,
    /// The file of tokens can't be read, so every token is refused.
    #[error("the tokens can't be read")]
    Unreadable(#[source] TokensError),
}

/// Why the file of tokens can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// It can't be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It is not in the format that sshjobs writes.
    #[error("{} is damaged: {source}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: serde_json::Error,
    },
    /// Other users than its owner may change it.
    #[error("{} may be written by others than its owner", .0.display())]
    Exposed(PathBuf),
    /// A caller can't have this name.
    #[error("{0:?} can't be a caller's name")]
    Name(String),
    /// A caller has a token already.
    #[error("{0} has a token already")]
    Exists(String),
    /// No caller has this name.
    #[error("{0:?} has no token")]
    Unknown(String),
}

/// Contents of the file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    tokens: Vec<TokenEntry>,
}

/// Longest name of a caller.
const LONGEST_NAME: usize = 64;

impl Tokens {
    /// The tokens of a state directory, which need not exist.
    pub fn of(state_dir: &Path) -> Self {
        Self {
            file: state_dir.join("tokens.json"),
            read: Mutex::default(),
        }
    }

    /// The caller of a token, and its current rights.
    ///
    /// # Errors
    /// Why the token is refused. If the file can't be read, every token is refused.
    ///
    /// Blocks while it reads the file.
    pub fn caller_of(&self, token: &str) -> Result<(Caller, Rights), Refused> {
        let shown = TokenHash::of(token);
        let entries = self.list().map_err(Refused::Unreadable)?;
        // Every entry is compared, so that the time reveals nothing about the match.
        let known = entries.iter().fold(None, |known, entry| {
            if entry.hash.is(&shown) {
                Some(entry)
            } else {
                known
            }
        });
        match known {
            None => Err(Refused::Unknown),
            Some(entry) if entry.has_expired(now()) => Err(Refused::Expired),
            Some(entry) => Ok((entry.caller(), entry.rights())),
        }
    }

    /// All tokens, including expired ones, in the order of creation.
    ///
    /// # Errors
    /// [`TokensError::Io`], [`TokensError::Damaged`], [`TokensError::Exposed`].
    pub fn list(&self) -> Result<Arc<[TokenEntry]>, TokensError> {
        let stamp = match std::fs::metadata(&self.file) {
            Ok(metadata) => self.stamp(&metadata)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Arc::default()),
            Err(error) => return Err(self.failed(error)),
        };
        if let Some((_, entries)) = lock(&self.read).as_ref().filter(|(read, _)| *read == stamp) {
            return Ok(Arc::clone(entries));
        }
        // Opening a FIFO would wait for a writer.
        let flags = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
        let opened = OpenOptions::new().read(true).custom_flags(flags).open(&self.file);
        let file = opened.map_err(|error| self.failed(error))?;
        let metadata = file.metadata().map_err(|error| self.failed(error))?;
        if !metadata.is_file() {
            return Err(self.failed(io::Error::other("it is not a regular file")));
        }
        // Of the file that is read: it may have been replaced since the first look.
        let stamp = self.stamp(&metadata)?;
        let contents: Contents =
            serde_json::from_reader(io::BufReader::new(file)).map_err(|source| {
                TokensError::Damaged {
                    file: self.file.clone(),
                    source,
                }
            })?;
        let entries: Arc<[TokenEntry]> = contents.tokens.into();
        *lock(&self.read) = Some((stamp, Arc::clone(&entries)));
        Ok(entries)
    }

    fn stamp(&self, metadata: &Metadata) -> Result<Stamp, TokensError> {
        if metadata.mode() & 0o022 != 0 {
            return Err(TokensError::Exposed(self.file.clone()));
        }
        Ok((
            metadata.ino(),
            metadata.ctime(),
            metadata.ctime_nsec(),
            metadata.size(),
        ))
    }

    /// Creates a token for a caller without a valid one.
    ///
    /// # Errors
    /// [`TokensError::Name`], [`TokensError::Exists`], or those of [`list`](Self::list).
    pub fn add(
        &self,
        name: &str,
        rights: Rights,
        lifetime: Option<Duration>,
    ) -> Result<Token, TokensError> {
        let is_name = (1..=LONGEST_NAME).contains(&name.len())
            && name
                .chars()
                .all(|c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@'));
        // "local" is reserved for the user who started the process.
        if !is_name || name == Caller::local().as_str() {
            return Err(TokensError::Name(name.to_owned()));
        }
        let token = Token::random();
        let created_at = now();
        self.change(|tokens| {
            tokens.retain(|entry| entry.name != name || !entry.has_expired(created_at));
            if tokens.iter().any(|entry| entry.name == name) {
                return Err(TokensError::Exists(name.to_owned()));
            }
            tokens.push(TokenEntry {
                name: name.to_owned(),
                role: rights.role,
                hosts: rights.hosts,
                created_at,
                expires_at: lifetime.map(|lifetime| created_at.saturating_add(lifetime.as_secs())),
                hash: token.hash(),
            });
            Ok(())
        })?;
        Ok(token)
    }

    /// Revokes a caller's token. Servers refuse it from now on.
    ///
    /// # Errors
    /// [`TokensError::Unknown`], or those of [`list`](Self::list).
    pub fn revoke(&self, name: &str) -> Result<(), TokensError> {
        self.change(|tokens| {
            let before = tokens.len();
            tokens.retain(|entry| entry.name != name);
            if tokens.len() == before {
                Err(TokensError::Unknown(name.to_owned()))
            } else {
                Ok(())
            }
        })
    }

    /// Replaces the file, one process at a time. Readers see the old one or the new one.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<TokenEntry>) -> Result<(), TokensError>,
    ) -> Result<(), TokensError> {
        let directory = self.file.parent().unwrap_or(Path::new("."));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)
            .map_err(|error| self.failed(error))?;
        // A file of its own, never removed: a lock on tokens.json would stay on the replaced file.
        let lock_file = self.file.with_extension("lock");
        let lock_file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(lock_file)
            .map_err(|error| self.failed(error))?;
        flock(&lock_file, FlockOperation::LockExclusive)
            .map_err(|error| self.failed(error.into()))?;
        // After `flock`, so that another process's change is not lost.
        let mut tokens = self.list()?.to_vec();
        change(&mut tokens)?;
        self.replace(directory, tokens).map_err(|error| self.failed(error))
    }

    fn replace(&self, directory: &Path, tokens: Vec<TokenEntry>) -> io::Result<()> {
        // In the same directory, so that it can be renamed. tempfile creates it with mode 0600.
        let mut file = tempfile::Builder::new().prefix("tokens").tempfile_in(directory)?;
        serde_json::to_writer_pretty(&mut file, &Contents { tokens })?;
        file.write_all(b"\n")?;
        // Before the rename, so that a power failure can't leave an empty file of tokens.
        file.as_file().sync_all()?;
        file.persist(&self.file)?;
        File::open(directory)?.sync_all()
    }

    fn failed(&self, source: io::Error) -> TokensError {
        TokensError::Io {
            file: self.file.clone(),
            source,
        }
    }
}

/// Seconds since the Unix epoch.
fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::jobs::Role;

    fn tokens() -> (tempfile::TempDir, Tokens) {
        let directory = tempfile::tempdir().unwrap();
        let tokens = Tokens::of(&directory.path().join("state"));
        (directory, tokens)
    }

    fn run() -> Rights {
        Rights {
            role: Role::Run,
            hosts: "web*".to_owned().into(),
        }
    }

    #[test]
    fn a_token_is_recognized_and_nowhere_written_down() {
        let (directory, tokens) = tokens();
        let token = tokens.add("ci", run(), None).unwrap();
        assert_eq!(
            tokens.caller_of(token.reveal()).unwrap(),
            (Caller::new("ci"), run())
        );
        assert!(matches!(
            tokens.caller_of("sshjobs_x"),
            Err(Refused::Unknown)
        ));
        let file = directory.path().join("state/tokens.json");
        assert_eq!(
            std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
            0o600
        );
        assert!(!std::fs::read_to_string(file).unwrap().contains(token.reveal()));
        assert!(!format!("{token:?}").contains(token.reveal()));
    }

    #[test]
    fn a_revoked_token_is_refused_at_once_by_other_processes() {
        let (directory, tokens) = tokens();
        let server = Tokens::of(&directory.path().join("state"));
        let one = tokens.add("one", run(), None).unwrap();
        let two = tokens.add("two", run(), None).unwrap();
        assert!(server.caller_of(one.reveal()).is_ok());
        tokens.revoke("one").unwrap();
        assert!(matches!(
            server.caller_of(one.reveal()),
            Err(Refused::Unknown)
        ));
        assert!(server.caller_of(two.reveal()).is_ok());
        assert!(matches!(tokens.revoke("one"), Err(TokensError::Unknown(_))));
    }

    #[test]
    fn a_token_expires_and_its_name_can_be_given_again() {
        let (_directory, tokens) = tokens();
        let old = tokens.add("ci", run(), Some(Duration::ZERO)).unwrap();
        assert!(matches!(
            tokens.caller_of(old.reveal()),
            Err(Refused::Expired)
        ));
        let new = tokens.add("ci", run(), Some(Duration::from_secs(60))).unwrap();
        assert!(tokens.caller_of(new.reveal()).is_ok());
        assert!(matches!(
            tokens.add("ci", run(), None),
            Err(TokensError::Exists(_))
        ));
        assert_eq!(tokens.list().unwrap().len(), 1);
    }

    #[test]
    fn names_that_could_be_mistaken_are_refused() {
        let (_directory, tokens) = tokens();
        for name in ["", "local", "a b", "a\n", "ä", &"x".repeat(65)] {
            assert!(
                matches!(tokens.add(name, run(), None), Err(TokensError::Name(_))),
                "{name:?}"
            );
        }
    }

    #[test]
    fn a_file_that_others_can_write_or_that_is_damaged_admits_no_caller() {
        let (directory, tokens) = tokens();
        let token = tokens.add("ci", run(), None).unwrap();
        let file = directory.path().join("state/tokens.json");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o620)).unwrap();
        assert!(matches!(
            tokens.caller_of(token.reveal()),
            Err(Refused::Unreadable(TokensError::Exposed(_)))
        ));
        std::fs::write(&file, "{").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        assert!(matches!(
            tokens.caller_of(token.reveal()),
            Err(Refused::Unreadable(TokensError::Damaged { .. }))
        ));
    }
}
