use std::fmt::Write as _;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

/// What the script is told of a job that it is to start.
#[derive(Debug)]
pub struct Order {
    /// What marks its processes.
    pub mark: String,
    /// The command line, for the login shell.
    pub command: String,
    /// Where to run it, if not at home.
    pub cwd: Option<String>,
    /// Variables to set. They are told on stdin, lie in a private file, and are gone from disk once the job has read them.
    pub env: Vec<(String, SecretString)>,
    /// What the job reads.
    pub stdin: Stdin,
    /// After this long the supervisor ends the process tree.
    pub timeout: Option<Duration>,
    /// Between TERM and KILL then.
    pub grace: Duration,
    /// Bytes of output after which it does, too; none when 0.
    pub quota: u64,
    /// TERM, columns and rows of its terminal.
    pub terminal: Option<(String, u32, u32)>,
    /// Time after the command's end in which what it has left in the background may still print.
    pub drain: Duration,
}

/// What a durable job reads.
#[derive(Debug)]
pub enum Stdin {
    /// What is written later.
    Open,
    /// Nothing.
    Closed,
    /// This.
    Text(SecretString),
}

/// Why a job can't be durable, whatever the host is.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum StartError {
    /// TERM has characters that a terminal of a durable job can't have.
    #[error("a durable job's TERM has letters, digits, and - + . _ only")]
    Term,
    /// The text for stdin contains a NUL, which a shell can't hold.
    #[error("the text for a durable job's stdin contains a NUL character")]
    Nul,
}

impl Order {
    /// Checks whether the script can be told all of it.
    pub fn check(&self) -> Result<(), StartError> {
        let is_plain = |term: &str| term.chars().all(|c| c.is_ascii_alphanumeric() || "-+._".contains(c));
        if self.terminal.as_ref().is_some_and(|(term, ..)| !is_plain(term)) {
            return Err(StartError::Term);
        }
        match &self.stdin {
            Stdin::Text(text) if text.expose_secret().contains('\0') => Err(StartError::Nul),
            Stdin::Open | Stdin::Closed | Stdin::Text(_) => Ok(()),
        }
    }

    /// What the script is told first: nothing that has to be quoted.
    fn words(&self) -> String {
        let stdin = match self.stdin {
            Stdin::Open => "open",
            Stdin::Closed => "closed",
            Stdin::Text(_) => "text",
        };
        let timeout =
            self.timeout.map_or_else(|| "0".to_owned(), |limit| format!("{:.3}", limit.as_secs_f64()));
        let terminal = self.terminal.as_ref();
        let terminal =
            terminal.map_or_else(|| "none".to_owned(), |(term, cols, rows)| format!("{term}:{cols}:{rows}"));
        let tenths = |time: Duration| time.as_millis().div_ceil(100);
        let (grace, drain) = (tenths(self.grace), tenths(self.drain));
        format!("{stdin} {timeout} {grace} {} {terminal} {drain}", self.quota)
    }

    /// What goes to the script's stdin to start a job. `follower` is told of it, if it runs.
    pub fn lines(&self, job: &str, follower: &str) -> SecretString {
        let mut lines = format!(
            "{job} {follower} {}\n{}\n{}\n{}\n",
            self.words(),
            self.mark,
            encode(self.cwd.as_deref().unwrap_or_default()),
            encode(&self.command)
        );
        for (name, value) in &self.env {
            writeln!(lines, "{name}={}", encode(value.expose_secret())).expect("a string takes all");
        }
        let text =
            if let Stdin::Text(text) = &self.stdin { encode(text.expose_secret()) } else { String::new() };
        writeln!(lines, "\n{text}\n.").expect("a string takes all");
        lines.into()
    }
}

/// A text on one line, as printf's `%b` reads it.
fn encode(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => encoded.push_str("\\n"),
            '\r' => encoded.push_str("\\r"),
            '\\' => encoded.push_str("\\\\"),
            other => encoded.push(other),
        }
    }
    encoded
}
