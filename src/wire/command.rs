use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use secrecy::SecretString;
use serde::{Deserialize, Serialize};

use super::Error;
use super::secret::{reveal, reveal_values};
use crate::jobs::{Command, Jobs, SpecError, Stdin, Terminal};

/// What a command is to be: the arguments that ssh_spawn and ssh_run share.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CommandRequest {
    /// Host name from ssh_hosts.
    pub host: String,
    /// Shell command line.
    pub command: String,
    /// Working directory; default home. Exit status 125 when missing.
    #[serde(default)]
    #[schemars(with = "String")]
    pub cwd: Option<String>,
    /// Variables to set; kept out of the process list.
    #[serde(default, serialize_with = "reveal_values")]
    #[schemars(with = "BTreeMap<String, String>")]
    pub env: BTreeMap<String, SecretString>,
    /// Text for stdin, then its end. Without it ssh_spawn leaves stdin open, and ssh_run has it empty.
    #[serde(default, serialize_with = "reveal")]
    #[schemars(with = "String")]
    pub stdin: Option<SecretString>,
    /// Run on a terminal, for programs that prompt. All output is then stdout.
    #[serde(default)]
    pub pty: bool,
    /// Terminal width. Default 80.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 1, max = 1000))]
    pub cols: Option<i64>,
    /// Terminal height. Default 24.
    #[serde(default)]
    #[schemars(with = "i64", range(min = 1, max = 1000))]
    pub rows: Option<i64>,
    /// TERM. Default xterm-256color.
    #[serde(default)]
    #[schemars(with = "String")]
    pub term: Option<String>,
    /// Let it outlive this server and the connection: it goes on on its host, and the same cursor reads on afterwards.
    #[serde(default)]
    #[schemars(with = "bool")]
    pub durable: Option<bool>,
    /// Word to find the job by in ssh_jobs.
    #[serde(default)]
    #[schemars(with = "String")]
    pub label: Option<String>,
    /// End the process tree after this many seconds.
    #[serde(default)]
    #[schemars(with = "f64", range(max = 31_536_000))]
    pub timeout_s: Option<f64>,
    /// A repeated call with the same key returns the first call's job.
    #[serde(default)]
    #[schemars(with = "String")]
    pub idempotency_key: Option<String>,
}

impl CommandRequest {
    /// A request to run `command` on `host`.
    pub fn new(host: impl Into<String>, command: impl Into<String>) -> Self {
        Self { host: host.into(), command: command.into(), ..Self::default() }
    }

    /// The command that is asked for.
    pub(super) fn into_command(self, jobs: &Jobs, without_stdin: Stdin) -> Result<Command, Error> {
        if self.command.trim().is_empty() {
            return Err(crate::jobs::Error::from(SpecError::NoCommand).into());
        }
        let terminal = self.terminal()?;
        let mut command = jobs.command(self.host, self.command);
        command = command.stdin(self.stdin.map_or(without_stdin, Stdin::Text));
        for (name, value) in self.env {
            command = command.env(name, value);
        }
        if let Some(directory) = self.cwd {
            command = command.cwd(directory);
        }
        if let Some(label) = self.label {
            command = command.label(label);
        }
        if let Some(seconds) = self.timeout_s {
            command = command.timeout(time_limit(seconds)?);
        }
        let default = jobs.config().defaults.durable;
        command = command.durable(self.durable.unwrap_or(default));
        if let Some(terminal) = terminal {
            command = command.terminal(terminal);
        }
        if let Some(key) = self.idempotency_key {
            command = command.idempotency_key(key);
        }
        Ok(command)
    }

    fn terminal(&self) -> Result<Option<Terminal>, Error> {
        if !self.pty {
            return match (self.cols, self.rows, &self.term) {
                (None, None, None) => Ok(None),
                _ => {
                    let message = "cols, rows and term are a terminal's, and there is none";
                    Err(Error::invalid(message, "set pty=true"))
                }
            };
        }
        let term = self.term.clone().unwrap_or_else(|| "xterm-256color".to_owned());
        let terminal = Terminal::new(term, (self.cols.unwrap_or(80), self.rows.unwrap_or(24)));
        Ok(Some(terminal.map_err(crate::jobs::Error::from)?))
    }
}

fn time_limit(seconds: f64) -> Result<Duration, Error> {
    let possible = (0.001..=31_536_000.0).contains(&seconds);
    let limit = Duration::try_from_secs_f64(seconds).ok().filter(|_| possible);
    limit.ok_or_else(|| {
        let message = format!("a time limit of {seconds} s is out of range");
        Error::invalid(message, "use 0.001 to 31536000 seconds (a year), or none")
    })
}
