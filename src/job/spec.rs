use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

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
    /// The terminal it runs on, if any.
    pub terminal: Option<Terminal>,
    /// How fast its output is taken.
    pub pace: Pace,
}

/// How fast a job's output is taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pace {
    /// As it comes. The oldest goes when nobody has read it in time.
    #[default]
    Free,
    /// As its one follower reads it: the far end is held back, as by a pipe, and nothing goes. Such a job has a connection to
    /// itself.
    OfFollower,
}

/// A pseudo-terminal to run a command on (RFC 4254 §6.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Terminal {
    /// What kind it is, for the variable `TERM`.
    pub term: String,
    /// Its width in characters.
    pub cols: u32,
    /// Its height in rows.
    pub rows: u32,
}

impl JobSpec {
    /// Whether both ask for the same, secrets included.
    pub fn is_same(&self, other: &Self) -> bool {
        let plain = |spec: &Self| {
            let names = (spec.host.clone(), spec.command.clone(), spec.cwd.clone(), spec.label.clone());
            (names, spec.timeout, spec.terminal.clone(), spec.pace)
        };
        let same_env = self.env.len() == other.env.len()
            && self.env.iter().all(|(name, value)| {
                other.env.get(name).is_some_and(|other| other.expose_secret() == value.expose_secret())
            });
        let same_stdin = match (&self.stdin, &other.stdin) {
            (StdinPlan::Open, StdinPlan::Open) | (StdinPlan::Closed, StdinPlan::Closed) => true,
            (StdinPlan::Text(one), StdinPlan::Text(two)) => one.expose_secret() == two.expose_secret(),
            _ => false,
        };
        plain(self) == plain(other) && same_env && same_stdin
    }

    /// A hash over all that is asked for, secrets included, to compare it later without keeping it.
    pub fn hash_with(&self, hashing: &impl BuildHasher) -> u64 {
        let Self { host, command, cwd, env, label, stdin, timeout, terminal, pace } = self;
        let env: Vec<_> = env.iter().map(|(name, value)| (name, value.expose_secret())).collect();
        let stdin = match stdin {
            StdinPlan::Open => (0, ""),
            StdinPlan::Closed => (1, ""),
            StdinPlan::Text(text) => (2, text.expose_secret()),
        };
        hashing.hash_one((host, command, cwd, env, label, stdin, timeout, terminal, pace))
    }
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
