use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use russh::keys::PrivateKey;
use secrecy::SecretString;
use tokio::process::Command;
use tokio::time::timeout;

use super::HostConfig;
use super::files::off_runtime;

/// Where a passphrase or a password is had from. It is read when a login asks for it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub enum SecretSource {
    /// An environment variable of this program.
    Env(String),
    /// A file that only its owner can read.
    File(PathBuf),
    /// The first line that a command prints; run by `/bin/sh`, within 30 s.
    Command(String),
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where it comes from, never what it is.
impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "from the variable {name}"),
            Self::File(file) => write!(f, "from {}", file.display()),
            // A command line may hold what it should not.
            Self::Command(_) => f.write_str("from a command"),
        }
    }
}

/// Why a secret could not be had. Never holds any of it.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The variable is not set.
    #[error("the environment variable {0} is not set")]
    NotSet(String),
    /// The file can't be read.
    #[error("can't read {}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Others can read the file.
    #[error("others can read {}; chmod 600 it", .0.display())]
    Exposed(PathBuf),
    /// The command did not do it.
    #[error("the command for it failed: {0}")]
    Command(String),
}

const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a person may take; below sshd's LoginGraceTime of 120 s, for a login that runs into that counts as a bad one.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(100);

impl SecretSource {
    /// Reads the secret.
    pub async fn read(&self) -> Result<SecretString, SecretError> {
        match self {
            Self::Env(name) => {
                std::env::var(name).map(Into::into).map_err(|_| SecretError::NotSet(name.clone()))
            }
            Self::File(file) => {
                let path = file.clone();
                let late = |source| SecretError::Unreadable { file: file.clone(), source };
                off_runtime(file, move || read_file(&path)).await.map_err(late)?
            }
            Self::Command(command) => run(Command::new("/bin/sh").arg("-c").arg(command)).await,
        }
    }
}

fn read_file(file: &Path) -> Result<SecretString, SecretError> {
    let unreadable = |source| SecretError::Unreadable { file: file.to_owned(), source };
    if others_can_read(file).map_err(unreadable)? {
        return Err(SecretError::Exposed(file.to_owned()));
    }
    std::fs::read_to_string(file).map(first_line).map_err(unreadable)
}

/// ssh ignores private files that others can read, and so do we.
pub(super) fn others_can_read(file: &Path) -> io::Result<bool> {
    Ok(std::fs::metadata(file)?.permissions().mode() & 0o077 != 0)
}

async fn run(command: &mut Command) -> Result<SecretString, SecretError> {
    let failed = |why: &dyn fmt::Display| SecretError::Command(why.to_string());
    // What it says on stderr is for the person who set it up.
    let running = command.stdin(Stdio::null()).stderr(Stdio::inherit()).kill_on_drop(true).output();
    let output = timeout(COMMAND_TIMEOUT, running)
        .await
        .map_err(|_| failed(&format!("it took longer than {COMMAND_TIMEOUT:?}")))?
        .map_err(|error| failed(&error))?;
    if !output.status.success() {
        return Err(failed(&output.status));
    }
    String::from_utf8(output.stdout).map(first_line).map_err(|_| failed(&"it printed no text"))
}

fn first_line(text: String) -> SecretString {
    let line = text.lines().next().unwrap_or_default().to_owned();
    drop(SecretString::from(text));
    line.into()
}

/// What a person is asked during a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// What the user calls the host.
    pub host: String,
    /// The question. Of keyboard-interactive (RFC 4256) it is the server's own words: not to be trusted, nor to be shown
    /// unescaped.
    pub text: String,
    /// The answer may be seen while it is typed.
    pub echo: bool,
}

/// The answer to a [`Question`]; none when nobody gives one.
pub type Answer<'a> = Pin<Box<dyn Future<Output = Option<SecretString>> + Send + 'a>>;

/// Asks a person.
pub trait Prompter: Send + Sync {
    /// Puts a question. Dropping the future takes it back.
    fn ask<'a>(&'a self, question: &'a Question) -> Answer<'a>;
}

/// Asks through the program that `SSH_ASKPASS` names, as ssh does where it has no terminal.
#[derive(Debug)]
pub struct Askpass(PathBuf);

impl Askpass {
    /// The program of the environment, if there is one.
    pub fn from_env() -> Option<Self> {
        let is_unwanted = std::env::var_os("SSH_ASKPASS_REQUIRE").is_some_and(|how| how == "never");
        let program = std::env::var_os("SSH_ASKPASS").filter(|program| !program.is_empty() && !is_unwanted);
        program.map(|program| Self(program.into()))
    }
}

impl Prompter for Askpass {
    fn ask<'a>(&'a self, question: &'a Question) -> Answer<'a> {
        Box::pin(async move {
            let text: String = question.text.chars().filter(|c| !c.is_control()).collect();
            let answer = run(Command::new(&self.0).arg(format!("{}: {text}", question.host))).await;
            answer.inspect_err(|error| tracing::warn!(%error, "SSH_ASKPASS gave no answer")).ok()
        })
    }
}

/// What logins need to know, and whom they may ask. What was right once is not asked for again.
#[derive(Default)]
pub struct Secrets {
    prompter: Option<Arc<dyn Prompter>>,
    keys: Mutex<HashMap<PathBuf, Arc<PrivateKey>>>,
    passwords: Mutex<HashMap<HostConfig, SecretString>>,
    /// One question at a time.
    asking: tokio::sync::Mutex<()>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Secrets {
    /// With somebody to ask.
    pub fn asking(prompter: Option<Arc<dyn Prompter>>) -> Self {
        Self { prompter, ..Self::default() }
    }

    /// Whether there is somebody to ask.
    pub(super) fn can_ask(&self) -> bool {
        self.prompter.is_some()
    }

    pub(super) async fn ask(&self, question: &Question) -> Option<SecretString> {
        let prompter = self.prompter.as_ref()?;
        let asked = async {
            let _one_at_a_time = self.asking.lock().await;
            prompter.ask(question).await
        };
        timeout(ANSWER_TIMEOUT, asked).await.ok()?
    }

    pub(super) fn key(&self, file: &Path) -> Option<Arc<PrivateKey>> {
        lock(&self.keys).get(file).cloned()
    }

    pub(super) fn keep_key(&self, file: &Path, key: Arc<PrivateKey>) {
        lock(&self.keys).insert(file.to_owned(), key);
    }

    pub(super) fn password(&self, host: &HostConfig) -> Option<SecretString> {
        lock(&self.passwords).get(host).cloned()
    }

    pub(super) fn keep_password(&self, host: &HostConfig, password: Option<SecretString>) {
        match password {
            Some(password) => lock(&self.passwords).insert(host.clone(), password),
            None => lock(&self.passwords).remove(host),
        };
    }
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    async fn read(source: SecretSource) -> Result<String, String> {
        source.read().await.map(|secret| secret.expose_secret().to_owned()).map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_secret_is_the_first_line_of_its_source() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "pass word \nmore\n").unwrap();
        assert_eq!(read(SecretSource::File(file.path().into())).await.unwrap(), "pass word ");
        assert_eq!(read(SecretSource::Command("echo one; echo two".into())).await.unwrap(), "one");
        assert_eq!(read(SecretSource::Env("PATH".into())).await.unwrap(), std::env::var("PATH").unwrap());
    }

    #[tokio::test]
    async fn a_source_that_has_none_says_why_and_nothing_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "secret").unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(read(SecretSource::File(file.path().into())).await.unwrap_err().contains("others can read"));
        assert!(read(SecretSource::File("/no/such".into())).await.unwrap_err().contains("/no/such"));
        assert!(read(SecretSource::Env("NO_SUCH".into())).await.unwrap_err().contains("NO_SUCH"));
        let failed = read(SecretSource::Command("echo secret; exit 3".into())).await.unwrap_err();
        assert!(failed.contains("exit status: 3") && !failed.contains("secret"), "{failed}");
    }
}
