//! Tokens: who they belong to, and how they are created and revoked.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::error::TokensError;
use super::file::TokensFile;
use super::home::Home;
use super::shared::SharedTokens;
use super::token::TokenHash;
use super::{Token, TokenEntry};
use sshjobs_core::jobs::{Caller, Rights, SharedText};

/// The tokens of a state directory or of a cluster.
pub struct Tokens {
    home: Box<dyn Home>,
}

/// Why a token is refused.
#[derive(Debug, thiserror::Error)]
pub enum TokenRefusal {
    /// It does not exist, or was revoked.
    #[error("the token is not known")]
    Unknown,
    /// It has expired.
    #[error("the token has expired")]
    Expired,
    /// The tokens can't be read, so every token is refused.
    #[error("the tokens can't be read")]
    Unreadable(#[source] TokensError),
}

/// Longest name of a caller.
const LONGEST_NAME: usize = 64;

impl Tokens {
    /// The tokens of a state directory, which need not exist.
    pub fn of(state_dir: &Path) -> Self {
        Self {
            home: Box::new(TokensFile::of(state_dir)),
        }
    }

    /// The tokens of a cluster.
    pub fn of_cluster(text: Box<dyn SharedText>) -> Self {
        Self {
            home: Box::new(SharedTokens::new(text)),
        }
    }

    /// The caller of a token, and its current rights.
    ///
    /// # Errors
    /// Why the token is refused. If the tokens can't be read, every token is refused.
    ///
    /// Blocks while it reads the file.
    pub fn caller_of(&self, token: &str) -> Result<(Caller, Rights), TokenRefusal> {
        match self.known_caller_of(token) {
            Err(TokenRefusal::Unknown) => {
                // It may have been created a moment ago, at another machine.
                self.home.refresh();
                self.known_caller_of(token)
            }
            known => known,
        }
    }

    /// Like [`caller_of`](Self::caller_of), but only if that needs no network and no network disk. `None` says
    /// nothing about the token.
    pub fn caller_at_once(&self, token: &str) -> Option<(Caller, Rights)> {
        caller_in(&self.home.list_at_once()?, token).ok()
    }

    fn known_caller_of(&self, token: &str) -> Result<(Caller, Rights), TokenRefusal> {
        caller_in(&self.list().map_err(TokenRefusal::Unreadable)?, token)
    }

    /// All tokens, including expired ones, in the order of creation.
    ///
    /// # Errors
    /// If the tokens can't be read.
    pub fn list(&self) -> Result<Arc<[TokenEntry]>, TokensError> {
        self.home.list()
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
        self.home.change(&|tokens| {
            tokens.retain(|entry| entry.name != name || !entry.has_expired(created_at));
            if tokens.iter().any(|entry| entry.name == name) {
                return Err(TokensError::Exists(name.to_owned()));
            }
            tokens.push(TokenEntry {
                name: name.to_owned(),
                role: rights.role,
                hosts: rights.hosts.clone(),
                created_at,
                expires_at: lifetime.map(|lifetime| created_at.saturating_add(lifetime.as_secs())),
                hash: token.hash(),
            });
            Ok(())
        })?;
        Ok(token)
    }

    /// Adds the tokens of another list, if this one is empty: a token that was revoked here must not
    /// come back. Returns their number.
    ///
    /// # Errors
    /// Those of [`list`](Self::list).
    pub fn add_all_of(&self, other: &Self) -> Result<usize, TokensError> {
        let new = other.list()?;
        let added = AtomicUsize::new(0);
        self.home.change(&|tokens| {
            if tokens.is_empty() {
                tokens.extend(new.iter().cloned());
                added.store(new.len(), Relaxed);
            }
            Ok(())
        })?;
        Ok(added.load(Relaxed))
    }

    /// Revokes a caller's token. Servers refuse it from now on.
    ///
    /// # Errors
    /// [`TokensError::Unknown`], or those of [`list`](Self::list).
    pub fn revoke(&self, name: &str) -> Result<(), TokensError> {
        self.home.change(&|tokens| {
            let before = tokens.len();
            tokens.retain(|entry| entry.name != name);
            if tokens.len() == before {
                Err(TokensError::Unknown(name.to_owned()))
            } else {
                Ok(())
            }
        })
    }
}

fn caller_in(entries: &[TokenEntry], token: &str) -> Result<(Caller, Rights), TokenRefusal> {
    let shown = TokenHash::of(token);
    // Every entry is compared, so that the time reveals nothing about the match.
    let known = entries.iter().fold(None, |known, entry| {
        if entry.hash.is(&shown) {
            Some(entry)
        } else {
            known
        }
    });
    match known {
        None => Err(TokenRefusal::Unknown),
        Some(entry) if entry.has_expired(now()) => Err(TokenRefusal::Expired),
        Some(entry) => Ok((entry.caller(), entry.rights())),
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
    use sshjobs_core::jobs::Role;

    fn tokens() -> (tempfile::TempDir, Tokens) {
        let directory = tempfile::tempdir().unwrap();
        let tokens = Tokens::of(&directory.path().join("state"));
        (directory, tokens)
    }

    fn run() -> Rights {
        Rights {
            hosts: "web*".to_owned().into(),
            ..Rights::everywhere(Role::Run)
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
            Err(TokenRefusal::Unknown)
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
        // Not known at once if the directory may be on a network disk.
        let quick = server.caller_at_once(one.reveal());
        assert!(quick.is_none_or(|(caller, _)| caller == Caller::new("one")));
        tokens.revoke("one").unwrap();
        assert_eq!(server.caller_at_once(one.reveal()), None);
        assert!(matches!(
            server.caller_of(one.reveal()),
            Err(TokenRefusal::Unknown)
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
            Err(TokenRefusal::Expired)
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
            Err(TokenRefusal::Unreadable(TokensError::Exposed(_)))
        ));
        std::fs::write(&file, "{").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o600)).unwrap();
        assert!(matches!(
            tokens.caller_of(token.reveal()),
            Err(TokenRefusal::Unreadable(TokensError::Damaged { .. }))
        ));
    }
}
