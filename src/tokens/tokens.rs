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

/// The file of tokens, `tokens.json` in the state directory. Nobody but its owner may read it.
pub struct Tokens {
    file: PathBuf,
    read: Mutex<Option<(Stamp, Arc<[TokenEntry]>)>>,
}

/// What tells that a file is the one that was read. Each change makes a new file.
type Stamp = (u64, i64, i64, u64);

/// Why a token is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// Nobody has made it, or it was revoked.
    #[error("the token is not known")]
    Unknown,
    /// It was valid once.
    #[error("the token has expired")]
    Expired,
}

/// Why the file of tokens can't be used.
#[derive(Debug, thiserror::Error)]
pub enum TokensError {
    /// It can't be read or written.
    #[error("{}: {source}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is not what sshjobs writes.
    #[error("{} is damaged: {source}", file.display())]
    Damaged {
        /// The file.
        file: PathBuf,
        /// Why.
        source: serde_json::Error,
    },
    /// Others than its owner may change it.
    #[error("{} may be written by others than its owner", .0.display())]
    Exposed(PathBuf),
    /// A caller can't have this name.
    #[error("{0:?} can't be a caller's name")]
    Name(String),
    /// A caller has a token already.
    #[error("{0} has a token already")]
    Exists(String),
    /// No caller has this name.
    #[error("there is no token of {0:?}")]
    Unknown(String),
}

/// The whole file.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    tokens: Vec<TokenEntry>,
}

/// Longest name of a caller.
const LONGEST_NAME: usize = 64;

impl Tokens {
    /// The tokens of a state directory; it need not exist.
    pub fn of(state_dir: &Path) -> Self {
        Self { file: state_dir.join("tokens.json"), read: Mutex::default() }
    }

    /// Whose a token is, and what its bearer may do now.
    ///
    /// # Errors
    /// Why it is not taken; or why the file can't be read, when nobody is let in.
    pub fn caller_of(&self, token: &str) -> Result<Result<(Caller, Rights), Refused>, TokensError> {
        let (shown, entries) = (TokenHash::of(token), self.list()?);
        // Every entry is compared: the time tells nothing about which one it is.
        let known =
            entries.iter().fold(None, |known, entry| if entry.hash.is(&shown) { Some(entry) } else { known });
        Ok(match known {
            None => Err(Refused::Unknown),
            Some(entry) if entry.has_expired(now()) => Err(Refused::Expired),
            Some(entry) => Ok((entry.caller(), entry.rights())),
        })
    }

    /// The tokens there are, expired ones too, in the order in which they were made.
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
        let file = File::open(&self.file).map_err(|error| self.failed(error))?;
        let stamp = self.stamp(&file.metadata().map_err(|error| self.failed(error))?)?;
        let contents: Contents = serde_json::from_reader(io::BufReader::new(file))
            .map_err(|source| TokensError::Damaged { file: self.file.clone(), source })?;
        let entries: Arc<[TokenEntry]> = contents.tokens.into();
        *lock(&self.read) = Some((stamp, Arc::clone(&entries)));
        Ok(entries)
    }

    fn stamp(&self, metadata: &Metadata) -> Result<Stamp, TokensError> {
        if metadata.mode() & 0o022 != 0 {
            return Err(TokensError::Exposed(self.file.clone()));
        }
        Ok((metadata.ino(), metadata.ctime(), metadata.ctime_nsec(), metadata.size()))
    }

    /// Makes a token for a caller, who has none that is valid.
    ///
    /// # Errors
    /// [`TokensError::Name`], [`TokensError::Exists`], or those of [`list`](Self::list).
    pub fn add(&self, name: &str, rights: Rights, lifetime: Option<Duration>) -> Result<Token, TokensError> {
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '@');
        let is_name = (1..=LONGEST_NAME).contains(&name.len()) && name.chars().all(is_word);
        // Whoever starts the process is nobody's bearer of a token.
        if !is_name || name == Caller::local().as_str() {
            return Err(TokensError::Name(name.to_owned()));
        }
        let (token, created_at) = (Token::random(), now());
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
            if tokens.len() == before { Err(TokensError::Unknown(name.to_owned())) } else { Ok(()) }
        })
    }

    /// Writes the file anew, one process at a time; whoever reads it sees the old one or the new one.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<TokenEntry>) -> Result<(), TokensError>,
    ) -> Result<(), TokensError> {
        let failed = |error| self.failed(error);
        let directory = self.file.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(failed)?;
        let lock_file = self.file.with_extension("lock");
        let lock_file =
            OpenOptions::new().create(true).append(true).mode(0o600).open(lock_file).map_err(failed)?;
        flock(&lock_file, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        let mut tokens = self.list()?.to_vec();
        change(&mut tokens)?;
        let write = || {
            let mut file = tempfile::Builder::new().prefix("tokens").tempfile_in(directory)?;
            serde_json::to_writer_pretty(&mut file, &Contents { tokens })?;
            file.write_all(b"\n")?;
            file.as_file().sync_all()?;
            file.persist(&self.file)?;
            File::open(directory)?.sync_all()
        };
        write().map_err(failed)
    }

    fn failed(&self, source: io::Error) -> TokensError {
        TokensError::Io { file: self.file.clone(), source }
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
        Rights { role: Role::Run, hosts: "web*".to_owned().into() }
    }

    #[test]
    fn a_token_is_recognized_and_nowhere_written_down() {
        let (directory, tokens) = tokens();
        let token = tokens.add("ci", run(), None).unwrap();
        assert_eq!(tokens.caller_of(token.reveal()).unwrap(), Ok((Caller::new("ci"), run())));
        assert_eq!(tokens.caller_of("sshjobs_x").unwrap(), Err(Refused::Unknown));
        let file = directory.path().join("state/tokens.json");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(!std::fs::read_to_string(file).unwrap().contains(token.reveal()));
        assert!(!format!("{token:?}").contains(token.reveal()));
    }

    #[test]
    fn what_one_revokes_another_refuses_at_once() {
        let (directory, tokens) = tokens();
        let server = Tokens::of(&directory.path().join("state"));
        let (one, two) = (tokens.add("one", run(), None).unwrap(), tokens.add("two", run(), None).unwrap());
        assert!(server.caller_of(one.reveal()).unwrap().is_ok());
        tokens.revoke("one").unwrap();
        assert_eq!(server.caller_of(one.reveal()).unwrap(), Err(Refused::Unknown));
        assert!(server.caller_of(two.reveal()).unwrap().is_ok());
        assert!(matches!(tokens.revoke("one"), Err(TokensError::Unknown(_))));
    }

    #[test]
    fn a_token_expires_and_its_name_can_be_given_again() {
        let (_directory, tokens) = tokens();
        let old = tokens.add("ci", run(), Some(Duration::ZERO)).unwrap();
        assert_eq!(tokens.caller_of(old.reveal()).unwrap(), Err(Refused::Expired));
        let new = tokens.add("ci", run(), Some(Duration::from_secs(60))).unwrap();
        assert!(tokens.caller_of(new.reveal()).unwrap().is_ok());
        assert!(matches!(tokens.add("ci", run(), None), Err(TokensError::Exists(_))));
        assert_eq!(tokens.list().unwrap().len(), 1);
    }

    #[test]
    fn names_that_could_be_mistaken_are_refused() {
        let (_directory, tokens) = tokens();
        for name in ["", "local", "a b", "a\n", "ä", &"x".repeat(65)] {
            assert!(matches!(tokens.add(name, run(), None), Err(TokensError::Name(_))), "{name:?}");
        }
    }

    #[test]
    fn a_file_that_others_may_write_or_that_is_damaged_lets_nobody_in() {
        let (directory, tokens) = tokens();
        let token = tokens.add("ci", run(), None).unwrap();
        let file = directory.path().join("state/tokens.json");
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o620)).unwrap();
        assert!(matches!(tokens.caller_of(token.reveal()), Err(TokensError::Exposed(_))));
        std::fs::write(&file, "{").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        assert!(matches!(tokens.caller_of(token.reveal()), Err(TokensError::Damaged { .. })));
    }
}
