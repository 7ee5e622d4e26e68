use std::collections::BTreeMap;
use std::time::Duration;

use secrecy::SecretString;

/// What a job is asked to be.
#[derive(Clone, Debug)]
pub struct JobSpec {
    /// The host's name, as the user calls it.
    pub host: String,
    /// The command line, run by the login shell as `ssh HOST COMMAND` would.
    pub command: String,
    /// Where to run it; relative to the home directory, where `~` and `~/` lead too.
    pub cwd: Option<String>,
    /// Variables to set. The values travel on stdin, never in the command line.
    pub env: BTreeMap<String, SecretString>,
    /// A word of the caller's, to find the job by.
    pub label: Option<String>,
    /// What the command reads.
    pub stdin: StdinPlan,
    /// After this long the whole tree is ended.
    pub timeout: Option<Duration>,
}

/// What a job's stdin is.
#[derive(Clone, Debug)]
pub enum StdinPlan {
    /// Open, for later writes.
    Open,
    /// At its end from the start, so that a command that reads it cannot hang.
    Closed,
    /// This text, then its end.
    Text(SecretString),
}
