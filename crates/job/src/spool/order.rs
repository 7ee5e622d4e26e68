//! The order that tells the script which job to start.

use std::fmt::Write as _;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use crate::{EarlyWarning, Restart, RestartAfter, RetryCondition, inert_bytes};

/// Specification of a job for the script.
#[derive(Debug)]
pub struct SpoolOrder {
    /// Identifies its processes.
    pub mark: String,
    /// The command line, for the login shell.
    pub command: String,
    /// Working directory, if not the home directory.
    pub cwd: Option<String>,
    /// Variables to set. They are sent on stdin, kept in a private file, and deleted once the job
    /// has read them.
    pub env: Vec<(String, SecretString)>,
    /// The job's stdin.
    pub stdin: SpoolStdin,
    /// Time after which the supervisor ends the process tree.
    pub timeout: Option<Duration>,
    /// Time between TERM and KILL, if the timeout or the quota ends the job.
    pub grace: Duration,
    /// Bytes of output after which the host's warden ends the job; 0 for no limit.
    pub quota: u64,
    /// TERM, columns and rows of its terminal.
    pub terminal: Option<(String, u32, u32)>,
    /// Time after the command's end in which its background processes may still print.
    pub drain: Duration,
    /// Another user as whom the command runs.
    pub becomes: Option<BecomeOrder>,
    /// When the supervisor starts it again.
    pub restart: Option<Restart>,
    /// The signal before the time limit.
    pub warn: Option<EarlyWarning>,
}

/// How a durable job changes its user.
#[derive(Debug)]
pub struct BecomeOrder {
    /// The program: sudo, doas or su.
    pub program: &'static str,
    /// The user.
    pub user: String,
    /// A new word that marks the steps in the output.
    pub gate: String,
    /// A script with the directory, the variables and the command. The host runs it in place of
    /// these: the program passes on neither variables nor descriptors.
    pub script: SecretString,
}

/// Stdin of a durable job.
#[derive(Debug)]
pub enum SpoolStdin {
    /// Open, for later writes.
    Open,
    /// Empty.
    Closed,
    /// This text.
    Text(SecretString),
}

/// Why no host can run the job as a durable one.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum StartError {
    /// TERM has characters that are not allowed for a durable job.
    #[error("TERM of a durable job may contain only letters, digits and - + . _")]
    Term,
    /// The text for stdin contains a NUL, which a shell can't store.
    #[error("the text for a durable job's stdin contains a NUL character")]
    Nul,
}

impl SpoolOrder {
    /// Checks whether the script can represent all values.
    pub fn check(&self) -> Result<(), StartError> {
        if let Some((term, ..)) = &self.terminal
            && !term.chars().all(|c| c.is_ascii_alphanumeric() || "-+._".contains(c))
        {
            return Err(StartError::Term);
        }
        match &self.stdin {
            SpoolStdin::Text(text) if text.expose_secret().contains('\0') => Err(StartError::Nul),
            SpoolStdin::Open | SpoolStdin::Closed | SpoolStdin::Text(_) => Ok(()),
        }
    }

    /// The words before the quoted values.
    fn words(&self) -> String {
        let stdin = match self.stdin {
            SpoolStdin::Open => "open",
            SpoolStdin::Closed => "closed",
            SpoolStdin::Text(_) => "text",
        };
        let timeout = self.timeout.map_or_else(
            || "0".to_owned(),
            |limit| format!("{:.3}", limit.as_secs_f64()),
        );
        let terminal = self.terminal.as_ref();
        let terminal = terminal.map_or_else(
            || "none".to_owned(),
            |(term, cols, rows)| format!("{term}:{cols}:{rows}"),
        );
        let grace = tenths(self.grace);
        let drain = tenths(self.drain);
        let becomes = self.becomes.as_ref();
        let becomes = becomes.map_or_else(
            || "-".to_owned(),
            |BecomeOrder {
                 program,
                 user,
                 gate,
                 script,
                 ..
             }| {
                let length = script.expose_secret().len();
                format!("{program}:{gate}:{length}:{user}")
            },
        );
        let restart = self.restart.as_ref().map_or_else(|| "-".to_owned(), restart_word);
        let warn = self.warn.as_ref().zip(self.timeout).map_or_else(
            || "-".to_owned(),
            |(EarlyWarning { signal, before }, limit)| {
                let after = limit.saturating_sub(*before);
                format!("{signal}:{:.3}", after.as_secs_f64())
            },
        );
        format!(
            "{stdin} {timeout} {grace} {} {terminal} {drain} {becomes} {restart} {warn}",
            self.quota
        )
    }

    /// Input of the script to start a job. `follower` is the session to which the job is added, if
    /// it runs.
    ///
    /// The password is for the program that changes the user, if it asks for one.
    pub fn lines(
        &self,
        job: &str,
        follower: &str,
        password: Option<&SecretString>,
    ) -> SecretString {
        let (cwd, command, env) = if let Some(becomes) = &self.becomes {
            ("", becomes.script.expose_secret(), [].as_slice())
        } else {
            let cwd = self.cwd.as_deref().unwrap_or_default();
            (cwd, self.command.as_str(), self.env.as_slice())
        };
        let mut lines = format!(
            "{job} {follower} {}\n{}\n{}\n{}\n",
            self.words(),
            self.mark,
            encode(cwd),
            encode(command)
        );
        for (name, value) in env {
            writeln!(lines, "{name}={}", encode(value.expose_secret()))
                .expect("a string takes all");
        }
        let text = if let SpoolStdin::Text(text) = &self.stdin {
            encode(text.expose_secret())
        } else {
            String::new()
        };
        let password = password.map_or("", |password| password.expose_secret());
        // The empty line ends the variables. The dot shows that nothing was cut off.
        writeln!(lines, "\n{text}\n{password}\n.").expect("a string takes all");
        lines.into()
    }
}

/// Restarts as one word: `MODE:MOST:REBOOT:STATUSES:PATTERN`. `MOST` is `-` for no limit, statuses are separated by commas, and
/// the pattern is in the form of printf's `%b`, without spaces.
fn restart_word(restart: &Restart) -> String {
    let mode = match restart.after {
        RestartAfter::Failure => "failure",
        RestartAfter::AnyEnd => "always",
    };
    let most = restart.most.map_or_else(|| "-".to_owned(), |most| most.to_string());
    let reboot = if restart.after_reboot { "y" } else { "n" };
    let statuses = restart.retry_if.iter().filter_map(|condition| match condition {
        RetryCondition::Status(status) => Some(status.to_string()),
        RetryCondition::Output(_) => None,
    });
    let patterns = restart.retry_if.iter().filter_map(|condition| match condition {
        RetryCondition::Output(pattern) => Some(format!("({pattern})")),
        RetryCondition::Status(_) => None,
    });
    let statuses: Vec<String> = statuses.collect();
    let pattern: Vec<String> = patterns.collect();
    format!(
        "{mode}:{most}:{reboot}:{}:{}",
        statuses.join(","),
        inert_bytes(pattern.join("|").as_bytes()).replace(' ', "\\0040")
    )
}

/// A text as one line in the form of printf's `%b`.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => encoded.push_str("\\n"),
            '\r' => encoded.push_str("\\r"),
            // Every escape of %b begins with a backslash, so no other character needs one.
            '\\' => encoded.push_str("\\\\"),
            other => encoded.push(other),
        }
    }
    encoded
}

/// A duration in tenths of a second, rounded up.
fn tenths(time: Duration) -> u128 {
    time.as_millis().div_ceil(100)
}
