//! Where passwords and passphrases come from. Errors and `Debug` never show them.

use std::fmt;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::process::Command;
use tokio::time::timeout;

use crate::files::off_runtime;
use sshjobs_base::bounded_file::read_text;

/// Source of a passphrase or password: `{ env = "NAME" }`, `{ file = "PATH" }` or
/// `{ command = "COMMAND" }`. It is read when it is needed. The configuration never contains the
/// secret.
#[derive(Clone, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "serde_json::Value")]
pub enum SecretSource {
    /// An environment variable of this program.
    Env(String),
    /// A file that only its owner can read.
    File(PathBuf),
    /// The output of a command, run by `/bin/sh` within 30 s.
    Command(String),
}

/// The error for a secret written directly into the configuration does not repeat it.
impl TryFrom<serde_json::Value> for SecretSource {
    type Error = &'static str;

    fn try_from(value: serde_json::Value) -> Result<Self, &'static str> {
        const FORMS: &str = "a secret comes from { env = \"NAME\" }, { file = \"PATH\" } or { \
            command = \"COMMAND\" }; the configuration never contains it";
        let table = value.as_object().filter(|table| table.len() == 1).ok_or(FORMS)?;
        let (key, value) = table.iter().next().ok_or(FORMS)?;
        match (
            key.as_str(),
            value.as_str().filter(|text| !text.is_empty()).ok_or(FORMS)?,
        ) {
            ("env", name) => Ok(Self::Env(name.to_owned())),
            ("file", file) => Ok(Self::File(file.into())),
            ("command", command) => Ok(Self::Command(command.to_owned())),
            _ => Err(FORMS),
        }
    }
}

impl fmt::Debug for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Shows the source, never the secret.
impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Env(name) => write!(f, "from the variable {name}"),
            Self::File(file) => write!(f, "from {}", file.display()),
            // A command line may contain a secret.
            Self::Command(_) => f.write_str("from a command"),
        }
    }
}

/// Why a secret could not be read. Never contains any of it.
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
        /// The cause.
        source: io::Error,
    },
    /// Others can read the file.
    #[error("others can read {}; chmod 600 it", .0.display())]
    Exposed(PathBuf),
    /// The command failed.
    #[error("the command for it failed: {0}")]
    Command(String),
}

const COMMAND_TIMEOUT: Duration = Duration::from_secs(30);

impl SecretSource {
    /// Reads the first line of the secret.
    pub async fn read(&self) -> Result<SecretString, SecretError> {
        match self {
            // A variable has no lines.
            Self::Env(_) => self.read_whole().await,
            Self::File(_) | Self::Command(_) => self.read_whole().await.map(first_line),
        }
    }

    /// Reads the secret without the line ends at its end, at most 16 MiB.
    pub async fn read_whole(&self) -> Result<SecretString, SecretError> {
        let text = match self {
            Self::Env(name) => std::env::var(name)
                .map(SecretString::from)
                .map_err(|_| SecretError::NotSet(name.clone())),
            Self::File(file) => {
                let path = file.clone();
                off_runtime(file, move || read_file(&path)).await.map_err(|source| {
                    SecretError::Unreadable {
                        file: file.clone(),
                        source,
                    }
                })?
            }
            Self::Command(command) => {
                output_of(
                    Command::new("/bin/sh").arg("-c").arg(command),
                    COMMAND_TIMEOUT,
                )
                .await
            }
        };
        text.map(|text| text.expose_secret().trim_end_matches(['\r', '\n']).to_owned().into())
    }
}

fn read_file(file: &Path) -> Result<SecretString, SecretError> {
    if others_can_read(file).map_err(|source| unreadable(file, source))? {
        return Err(SecretError::Exposed(file.to_owned()));
    }
    let text = read_text(file).map_err(|source| unreadable(file, source))?;
    Ok(text.into())
}

fn unreadable(file: &Path, source: io::Error) -> SecretError {
    SecretError::Unreadable {
        file: file.to_owned(),
        source,
    }
}

/// ssh ignores private files that others can read, and so do we.
pub(crate) fn others_can_read(file: &Path) -> io::Result<bool> {
    Ok(std::fs::metadata(file)?.permissions().mode() & 0o077 != 0)
}

/// The first line that a command prints within a time limit.
pub(crate) async fn first_line_of(
    command: &mut Command,
    limit: Duration,
) -> Result<SecretString, SecretError> {
    output_of(command, limit).await.map(first_line)
}

/// The text that a command prints within a time limit.
async fn output_of(command: &mut Command, limit: Duration) -> Result<SecretString, SecretError> {
    // Its stderr is for the person who configured it.
    let running = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .kill_on_drop(true)
        .output();
    let output = timeout(limit, running)
        .await
        .map_err(|_| failed(format!("it took longer than {limit:?}")))?
        .map_err(failed)?;
    if !output.status.success() {
        return Err(failed(output.status));
    }
    let text = String::from_utf8(output.stdout).map_err(|_| failed("it printed no text"))?;
    Ok(text.into())
}

fn failed(why: impl fmt::Display) -> SecretError {
    SecretError::Command(why.to_string())
}

fn first_line(text: SecretString) -> SecretString {
    text.expose_secret().lines().next().unwrap_or_default().to_owned().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(source: SecretSource) -> Result<String, String> {
        source
            .read()
            .await
            .map(|secret| secret.expose_secret().to_owned())
            .map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_secret_is_the_first_line_of_its_source() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "pass word \nmore\n").unwrap();
        assert_eq!(
            read(SecretSource::File(file.path().into())).await.unwrap(),
            "pass word "
        );
        assert_eq!(
            read(SecretSource::Command("echo one; echo two".into())).await.unwrap(),
            "one"
        );
        assert_eq!(
            read(SecretSource::Env("PATH".into())).await.unwrap(),
            std::env::var("PATH").unwrap()
        );
    }

    #[tokio::test]
    async fn a_whole_secret_has_all_lines_without_the_last_line_end() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one\ntwo \n").unwrap();
        let whole = SecretSource::File(file.path().into()).read_whole().await.unwrap();
        assert_eq!(whole.expose_secret(), "one\ntwo ");
    }

    #[tokio::test]
    async fn a_source_that_has_none_says_why_and_nothing_else() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "secret").unwrap();
        std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(
            read(SecretSource::File(file.path().into()))
                .await
                .unwrap_err()
                .contains("others can read")
        );
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        let failed = read(SecretSource::File(missing.clone())).await.unwrap_err();
        assert!(failed.contains(&missing.display().to_string()), "{failed}");
        assert!(read(SecretSource::Env("NO_SUCH".into())).await.unwrap_err().contains("NO_SUCH"));
        let failed = read(SecretSource::Command("echo secret; exit 3".into())).await.unwrap_err();
        assert!(
            failed.contains("exit status: 3") && !failed.contains("secret"),
            "{failed}"
        );
    }
}
