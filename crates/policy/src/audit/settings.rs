//! The table `[audit]` of a policy file.

use std::num::NonZeroU32;
use std::path::PathBuf;

use serde::Deserialize;

/// Where and how calls are recorded.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AuditSettings {
    /// The log. In the state directory unless absolute.
    #[serde(default = "log_file")]
    pub file: PathBuf,
    /// The private key that signs checkpoints. In the directory of the configuration unless absolute.
    #[serde(default = "key_file")]
    pub key: PathBuf,
    /// What happens to a call that can't be recorded.
    #[serde(default)]
    pub on_failure: OnFailure,
    /// Size in MiB at which the log is continued in a new file.
    #[serde(default = "rotate_mb")]
    pub rotate_mb: NonZeroU32,
    /// Where the newest hash is copied to with each checkpoint.
    #[serde(default)]
    pub anchors: Vec<Anchor>,
}

/// What happens to a call that can't be recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnFailure {
    /// It is refused.
    #[default]
    Refuse,
    /// It goes on. The number of such calls is recorded later.
    Warn,
}

/// A place outside of the log that has its newest hash.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Anchor {
    /// A line is appended to this file.
    File(PathBuf),
    /// A message is sent to the system's log, which this socket receives, such as `/dev/log`.
    Syslog(PathBuf),
    /// The line is the stdin of this command.
    Command(String),
}

/// The files of a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditFiles {
    /// The log.
    pub log: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

impl AuditFiles {
    /// Name of this machine's log in a cluster: `MACHINE:PATH`.
    pub fn log_name(&self) -> String {
        // The file may not exist yet, but its directory does.
        let directory = self.log.parent().and_then(|directory| directory.canonicalize().ok());
        let log = match (directory, self.log.file_name()) {
            (Some(directory), Some(name)) => directory.join(name),
            _ => std::path::absolute(&self.log).unwrap_or_else(|_| self.log.clone()),
        };
        format!("{}:{}", machine_name(), log.display())
    }
}

/// Name of this machine.
pub fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl Anchor {
    /// Its kind. What a command has in it may be secret.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Syslog(_) => "syslog",
            Self::Command(_) => "command",
        }
    }
}

fn log_file() -> PathBuf {
    "audit.jsonl".into()
}

fn key_file() -> PathBuf {
    "audit.key".into()
}

fn rotate_mb() -> NonZeroU32 {
    NonZeroU32::new(64).expect("it is not zero")
}
