//! The policy that is in force, read again when its file changes.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use tokio::task::spawn_blocking;
use tokio::time::{Instant, timeout};

use crate::hosts::HostBook;
use sshjobs_base::bounded_file::read_trusted_text;
use sshjobs_base::lock::lock;
use sshjobs_policy::{Inventory, Policy, PolicyMistake, Warning, sha256_hex};

/// A policy file, and the policy that is in force.
pub(super) struct PolicyInForce {
    file: PathBuf,
    current: Mutex<CurrentPolicy>,
    /// Held while the file is read, so that calls that come at once read it once.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct CurrentPolicy {
    /// `None` until the first good file was read.
    policy: Option<Arc<LoadedPolicy>>,
    /// Why the file that is there now is not in force.
    trouble: Option<Arc<PolicyFileError>>,
    /// Time of the last look at the file, and the stamp that it had.
    checked: Option<(Instant, Option<Stamp>)>,
}

/// A policy that was read.
pub(super) struct LoadedPolicy {
    pub(super) policy: Policy,
    pub(super) file: PathBuf,
    /// SHA-256 of the file, in hexadecimal.
    pub(super) hash: String,
    pub(super) warnings: Vec<Warning>,
    /// Hosts that rules name without wildcards.
    pub(super) named_hosts: Vec<String>,
}

/// Time of the last change of a file, its length and its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    changed: Option<SystemTime>,
    length: u64,
    mode: u32,
}

impl Stamp {
    /// Whether the file was changed just now, and may be half written.
    fn is_unsettled(self) -> bool {
        let age = self.changed.and_then(|changed| changed.elapsed().ok());
        age.is_some_and(|age| age < SETTLED)
    }
}

/// Why a policy file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum PolicyFileError {
    /// It can't be read.
    #[error("can't read {}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It has a mistake.
    #[error("{}:{}: {}", file.display(), mistake.line, mistake.message)]
    Mistake {
        /// The file.
        file: PathBuf,
        /// The mistake.
        mistake: PolicyMistake,
    },
    /// The hosts that its tags and patterns are about can't be listed.
    #[error("the hosts can't be listed: {0}")]
    Hosts(crate::hosts::HostError),
}

/// State of the policy, for operators.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyState {
    /// The file.
    pub file: PathBuf,
    /// SHA-256 of the policy in force, in hexadecimal. `None` if there is none, so that nothing is
    /// allowed.
    pub hash: Option<String>,
    /// Number of its rules.
    pub rules: usize,
    /// Why the file that is there now is not in force.
    pub trouble: Option<String>,
    /// Whether the audit log that it names can't be opened, or the last line could not be written.
    pub is_log_failing: bool,
    /// Parts of the file that are probably not meant so, each as `FILE:LINE: MESSAGE`.
    pub warnings: Vec<String>,
}

/// Interval at which a change of the file is noticed.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Age of a change that is taken: an editor may still write the rest of the file.
const SETTLED: Duration = Duration::from_millis(500);
/// Time limit for the file to be read.
const READ_TIME: Duration = Duration::from_secs(5);

impl PolicyInForce {
    pub(super) fn new(file: PathBuf) -> Self {
        Self {
            file,
            current: Mutex::default(),
            reading: tokio::sync::Mutex::default(),
        }
    }

    /// The policy in force. Reads the file if it may have changed.
    ///
    /// # Errors
    /// If no policy is in force yet, and the file can't be used.
    pub(super) async fn policy(
        &self,
        book: &HostBook,
    ) -> Result<Arc<LoadedPolicy>, Arc<PolicyFileError>> {
        if !self.was_just_checked() {
            self.check_file(book).await;
        }
        let current = lock(&self.current);
        match (&current.policy, &current.trouble) {
            (Some(policy), _) => Ok(Arc::clone(policy)),
            (None, Some(trouble)) => Err(Arc::clone(trouble)),
            (None, None) => unreachable!("a file that was checked is in force or in trouble"),
        }
    }

    /// Reads the file, whether or not it seems changed.
    pub(super) async fn reload(&self, book: &HostBook) {
        let _reading = self.reading.lock().await;
        self.read(book).await;
    }

    pub(super) async fn state(&self, book: &HostBook) -> PolicyState {
        let loaded = self.policy(book).await.ok();
        let trouble = lock(&self.current).trouble.clone();
        let warnings = loaded.iter().flat_map(|loaded| &loaded.warnings).map(|warning| {
            format!(
                "{}:{}: {}",
                self.file.display(),
                warning.line,
                warning.message
            )
        });
        PolicyState {
            file: self.file.clone(),
            warnings: warnings.collect(),
            hash: loaded.as_ref().map(|loaded| loaded.hash.clone()),
            rules: loaded.as_ref().map_or(0, |loaded| loaded.policy.rule_count()),
            trouble: trouble.map(|trouble| trouble.to_string()),
            is_log_failing: false,
        }
    }

    fn was_just_checked(&self) -> bool {
        let checked = lock(&self.current).checked;
        checked.is_some_and(|(when, _)| when.elapsed() < CHECK_INTERVAL)
    }

    async fn check_file(&self, book: &HostBook) {
        let _reading = self.reading.lock().await;
        // Another call may have checked it meanwhile.
        if self.was_just_checked() {
            return;
        }
        let seen = lock(&self.current).checked.map(|(_, stamp)| stamp);
        let stamp = self.stamp().await;
        let is_troubled = lock(&self.current).trouble.is_some();
        let is_first = lock(&self.current).checked.is_none();
        if !is_first && stamp.is_some_and(Stamp::is_unsettled) {
            // Looked at again in a second, and then with another stamp.
            lock(&self.current).checked = Some((Instant::now(), seen.flatten()));
            return;
        }
        // A file that could not be used is tried again: a permission or a host may be different.
        if seen == Some(stamp) && !is_troubled {
            lock(&self.current).checked = Some((Instant::now(), stamp));
            return;
        }
        self.read(book).await;
    }

    async fn read(&self, book: &HostBook) {
        // Before the read, so that a change during it is noticed at the next check.
        let stamp = self.stamp().await;
        let loaded = load(&self.file, book).await;
        let mut current = lock(&self.current);
        current.checked = Some((Instant::now(), stamp));
        match loaded {
            Ok(loaded) => {
                let is_new = current.policy.as_ref().is_none_or(|old| old.hash != loaded.hash);
                if is_new {
                    tracing::info!(
                        hash = loaded.hash,
                        rules = loaded.policy.rule_count(),
                        "the policy is in force"
                    );
                    for warning in &loaded.warnings {
                        tracing::warn!(line = warning.line, "{}", warning.message);
                    }
                }
                current.policy = Some(Arc::new(loaded));
                current.trouble = None;
            }
            Err(error) => {
                let text = error.to_string();
                let is_known = current.trouble.as_ref().is_some_and(|old| old.to_string() == text);
                // Without an older policy each call reports it.
                if !is_known && current.policy.is_some() {
                    tracing::error!(%error, "the new policy is not taken; the last one stays in force");
                }
                current.trouble = Some(Arc::new(error));
            }
        }
    }

    async fn stamp(&self) -> Option<Stamp> {
        let file = self.file.clone();
        let looking = spawn_blocking(move || {
            let metadata = std::fs::metadata(file).ok()?;
            Some(Stamp {
                changed: metadata.modified().ok(),
                length: metadata.len(),
                mode: metadata.mode(),
            })
        });
        timeout(READ_TIME, looking).await.ok()?.ok()?
    }
}

/// Reads a policy file and checks it against the listed hosts.
async fn load(file: &Path, book: &HostBook) -> Result<LoadedPolicy, PolicyFileError> {
    let text = read_off_runtime(file).await.map_err(|source| PolicyFileError::Unreadable {
        file: file.to_owned(),
        source,
    })?;
    let mistake = |mistake| PolicyFileError::Mistake {
        file: file.to_owned(),
        mistake,
    };
    let policy = Policy::parse(&text).map_err(mistake)?;
    let listed = book.listed().await.map_err(PolicyFileError::Hosts)?;
    let tagged = listed.into_keys().map(|name| {
        let tags = book.tags(&name).to_vec();
        (name, tags)
    });
    let warnings = policy.check(&Inventory(tagged.collect())).map_err(mistake)?;
    Ok(LoadedPolicy {
        named_hosts: policy.named_hosts(),
        policy,
        file: file.to_owned(),
        hash: sha256_hex(&text),
        warnings,
    })
}

/// Reads a file on a blocking thread, with a time limit: a disk that does not answer must not stop
/// calls for ever.
async fn read_off_runtime(file: &Path) -> io::Result<String> {
    let wanted = file.to_owned();
    let reading = spawn_blocking(move || read_trusted_text(&wanted));
    match timeout(READ_TIME, reading).await {
        Ok(read) => read.map_err(io::Error::other)?,
        Err(_) => Err(io::ErrorKind::TimedOut.into()),
    }
}
