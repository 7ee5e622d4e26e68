//! Specifications of jobs. A `JobSpec` is valid for any host; only a `Draft` can be invalid.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

use super::becomes::{BadBecome, Become};
use super::fetch_pattern::FetchPattern;
use super::gpus::GpuRequest;
use super::id::JobId;
use super::job_tree::JobTree;
use super::restart::{BadRestart, EarlyWarning, Restart};
use super::secret_uses::SecretUses;
use super::turn::{Turn, is_queue_name};
use crate::fleet::{FleetPlan, holds_address};
use crate::notify::Receiver;
use sshjobs_output::TerminalSize;

/// The specification of a job, unchecked. [`JobSpec`] is checked.
#[derive(Clone, Debug)]
pub struct Draft {
    /// The part that is stored and listed.
    pub facts: JobFacts,
    /// Variables to set. Their values are sent on stdin, never in the command line.
    pub env: BTreeMap<String, SecretString>,
    /// Secrets of the configuration that it uses. After they are read, their values are in `env` and
    /// `stdin`, too.
    pub secrets: SecretUses,
    /// The command's stdin.
    pub stdin: Stdin,
    /// How fast its output is taken.
    pub pace: Pace,
}

/// The public part of a specification. It is stored with the job, and listed.
// Field names and defaults are those of stored records.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobFacts {
    /// The host's name, as the caller wrote it.
    pub host: String,
    /// The command line.
    pub command: String,
    /// Who interprets it.
    #[serde(default, skip_serializing_if = "CommandShell::is_login_shell")]
    pub shell: CommandShell,
    /// A label by which the caller finds the job; up to 200 characters.
    pub label: Option<String>,
    /// Working directory, relative to the home directory. `~` and `~/` are accepted.
    pub cwd: Option<String>,
    /// Time limit after which the whole process tree is ended; a millisecond to a year.
    pub timeout: Option<Duration>,
    /// The terminal it runs on, if any.
    pub terminal: Option<Terminal>,
    /// Another user as whom it runs, if not the account that logs in.
    pub becomes: Option<Become>,
    /// The template of the policy that the command was made from. `None` for a command that the caller
    /// has written.
    pub template: Option<TemplateCall>,
    /// Who is notified when the job ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notify: Vec<Receiver>,
    /// Conditions for its start.
    #[serde(default, skip_serializing_if = "Turn::is_now")]
    pub turn: Turn,
    /// Whether the job outlives this process: under a supervisor on its host, which keeps its
    /// output in files.
    pub durable: bool,
    /// The working tree that it was given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tree: Option<JobTree>,
    /// Whether `env_setup` comes from the configuration, and not from the caller.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_default_setup: bool,
    /// Commands that the same shell runs before it, such as `module load cuda`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_setup: Option<String>,
    /// When it is started again on its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restart: Option<Restart>,
    /// The signal before its time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub warn: Option<EarlyWarning>,
    /// GPUs that it needs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpus: Option<GpuRequest>,
    /// Files that are copied back when it has ended.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fetch: Vec<FetchPattern>,
    /// The words from which its host was chosen, such as `any(tag:gpu)`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub chosen_from: Option<String>,
    /// The hosts of a fleet: each gets a job, and this job represents all of them. `host` is then
    /// the name of the fleet. `None` for a job on one host.
    pub fleet: Option<FleetPlan>,
    /// The fleet of which the job is a member.
    pub member_of: Option<JobId>,
}

/// The shell that interprets a command line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandShell {
    /// The login shell, as for `ssh HOST COMMAND`.
    #[default]
    Login,
    /// `/bin/sh`, whatever the login shell is: words that are quoted for it reach the program unchanged.
    Posix,
}

impl CommandShell {
    fn is_login_shell(&self) -> bool {
        *self == Self::Login
    }
}

/// A call of a command template.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TemplateCall {
    /// Name of the template.
    pub name: String,
    /// Values of its parameters, by name.
    #[serde(default)]
    pub params: BTreeMap<String, String>,
}

/// The specification of a job, checked as far as that does not depend on the host.
#[derive(Clone, Debug)]
pub struct JobSpec(Draft);

/// The stdin of a job.
#[derive(Clone, Debug)]
pub enum Stdin {
    /// Open, for later writes.
    Open,
    /// Closed from the start, so that a command that reads it can't hang.
    Closed,
    /// This text, then end of file.
    Text(SecretString),
}

/// How fast a job's output is received.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Pace {
    /// As fast as it arrives. The oldest output is evicted if no reader read it in time.
    #[default]
    Free,
    /// As fast as its single follower reads it: the far end is held back, as by a pipe, and nothing
    /// is evicted. Such a job has a connection of its own.
    OfFollower,
}

/// A pseudo-terminal to run a command on (RFC 4254 §6.2).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terminal {
    /// Type of the terminal, for the variable `TERM`.
    pub term: String,
    /// Its width in characters, 1 to 1000.
    pub cols: u32,
    /// Its height in rows, 1 to 1000.
    pub rows: u32,
    /// Whether the program's questions about its terminal are answered, as a terminal does.
    #[serde(default)]
    pub answers_queries: bool,
}

/// The variable that leads a job to its script. In a specification its value is the script itself; on the
/// host it is the path of a private file with the script.
pub const SCRIPT: &str = "SSHJOBS_SCRIPT";

/// Why a [`Draft`] is invalid, whatever the host.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum SpecError {
    /// The command is empty.
    #[error("command is empty")]
    NoCommand,
    /// The time limit is zero, or longer than a year.
    #[error("a time limit of {} s is out of range", .0.as_secs_f64())]
    Timeout(Duration),
    /// A variable or stdin is given two values.
    #[error("{0} is given both a value and a secret")]
    TwoValues(String),
    /// A label or key is too long.
    #[error("{0} is longer than {LONGEST_WORD} characters")]
    LongWord(&'static str),
    /// The idempotency key is empty.
    #[error("the idempotency key is empty")]
    EmptyKey,
    /// The terminal type has invalid characters.
    #[error("term is not a terminal type")]
    Term,
    /// The terminal size is out of range.
    #[error("{cols} columns and {rows} rows are not a terminal size")]
    TerminalSize {
        /// Columns.
        cols: i64,
        /// Rows.
        rows: i64,
    },
    /// A variable has an invalid name.
    #[error("{0:?} is not a name for an environment variable")]
    EnvName(String),
    /// The variable that marks a job's processes can't be set: without the mark they could not be
    /// found and ended.
    #[error("SSHJOBS_JOB marks the job's processes and can't be set")]
    Mark,
    /// The other user can't be named so.
    #[error(transparent)]
    Become(#[from] BadBecome),
    /// A durable job can't run as another user on a terminal.
    #[error("a durable job can't run on a terminal as another user")]
    DurableBecomeTerminal,
    /// A fleet can't have a terminal.
    #[error("a command that runs on many hosts can't run on a terminal")]
    FleetTerminal,
    /// The number of hosts is out of range.
    #[error("{0} hosts given; a fleet has 1 to {MOST_MEMBERS}")]
    Members(usize),
    /// The roll-out has invalid values.
    #[error("a roll-out needs at least 1 host at a time and at most {MOST_RETRIES} retries")]
    Rollout,
    /// A host name is invalid.
    #[error("{0:?} is not a host name")]
    MemberName(String),
    /// A queue has an invalid name.
    #[error("{0:?} is not a name for a queue: use up to 64 letters, digits, '_', '.' and '-'")]
    QueueName(String),
    /// It waits for too many jobs.
    #[error("a job can wait for at most {MOST_EARLIER} other jobs; {0} were given")]
    Earlier(usize),
    /// The script is too long.
    #[error("the script has {0} bytes; it may have {LONGEST_SCRIPT}")]
    LongScript(usize),
    /// A variable is longer than Linux takes.
    #[error(
        "the variable {0} and its name exceed {LONGEST_VARIABLE} bytes, the most that Linux passes to a program"
    )]
    LongVariable(String),
    /// Restarts, or the signal before the time limit, are wrong.
    #[error(transparent)]
    Restart(#[from] BadRestart),
    /// A signal is to come before a time limit that there is not, or that is shorter.
    #[error("a warning needs a time limit that is longer than the time before it")]
    WarningWithoutLimit,
    /// Its supervisor starts it again, and does not have the password of another user.
    #[error(
        "a command that runs as another user can't be restarted, gets no GPUs, and no warning before its time limit"
    )]
    RestartAsAnother,
    /// A NUL can't be part of a command line, a path or an environment.
    #[error("{0} contains a NUL character")]
    Nul(&'static str),
}

const SHORTEST_TIMEOUT: Duration = Duration::from_millis(1);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(31_536_000);
const LONGEST_WORD: usize = 200;
/// Maximum bytes of a variable, with its name. Linux takes 128 KiB with `=` and a NUL (MAX_ARG_STRLEN).
const LONGEST_VARIABLE: usize = (128 << 10) - 2;
/// Maximum bytes of a script.
const LONGEST_SCRIPT: usize = 1 << 20;
const LONGEST_TERM: usize = 64;
const MOST_MEMBERS: usize = 10_000;
const MOST_RETRIES: u32 = 100;
const MOST_EARLIER: usize = 32;

impl Draft {
    /// `command` on `host`, with its stdin open.
    pub fn new(host: impl Into<String>, command: impl Into<String>) -> Self {
        let facts = JobFacts {
            host: host.into(),
            command: command.into(),
            ..JobFacts::default()
        };
        Self::from(facts)
    }

    /// Sends a script with the job. Its command, which `/bin/sh` runs, finds it at the path in the variable
    /// [`SCRIPT`].
    pub fn set_script(&mut self, script: SecretString) {
        self.shell = CommandShell::Posix;
        self.env.insert(SCRIPT.to_owned(), script);
    }

    /// The script that is sent with the job.
    pub fn script(&self) -> Option<&SecretString> {
        self.env.get(SCRIPT)
    }

    /// Variables that it sets, and their values.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &SecretString)> {
        let variables = self.env.iter().map(|(name, value)| (name.as_str(), value));
        variables.filter(|(name, _)| *name != SCRIPT)
    }

    /// Names of all variables that it sets, including those that get a secret.
    pub fn env_names(&self) -> BTreeSet<&str> {
        let names = self.variables().map(|(name, _)| name);
        names.chain(self.secrets.env.keys().map(String::as_str)).collect()
    }

    /// Refuses a variable or stdin that is given both a value and a secret. Call it before the secrets
    /// are read.
    ///
    /// # Errors
    /// [`SpecError::TwoValues`].
    pub fn check_secrets(&self) -> Result<(), SpecError> {
        let both = self.secrets.env.keys().find(|name| self.env.contains_key(*name));
        if let Some(name) = both {
            return Err(SpecError::TwoValues(name.clone()));
        }
        let has_text = matches!(&self.stdin, Stdin::Text(text) if !text.expose_secret().is_empty());
        if has_text && self.secrets.stdin.is_some() {
            return Err(SpecError::TwoValues("stdin".to_owned()));
        }
        Ok(())
    }
}

impl From<JobFacts> for Draft {
    fn from(facts: JobFacts) -> Self {
        Self {
            facts,
            env: BTreeMap::new(),
            secrets: SecretUses::default(),
            stdin: Stdin::Open,
            pace: Pace::Free,
        }
    }
}

impl Deref for Draft {
    type Target = JobFacts;

    fn deref(&self) -> &JobFacts {
        &self.facts
    }
}

impl DerefMut for Draft {
    fn deref_mut(&mut self) -> &mut JobFacts {
        &mut self.facts
    }
}

impl TryFrom<Draft> for JobSpec {
    type Error = SpecError;

    fn try_from(mut draft: Draft) -> Result<Self, SpecError> {
        if matches!(&draft.stdin, Stdin::Text(text) if text.expose_secret().is_empty()) {
            draft.stdin = Stdin::Closed;
        }
        if draft.command.trim().is_empty() {
            return Err(SpecError::NoCommand);
        }
        if let Some(fleet) = &draft.fleet {
            check_fleet(fleet, draft.terminal.is_some())?;
        }
        check_turn(&draft.turn)?;
        if let Some(timeout) = draft.timeout
            && !(SHORTEST_TIMEOUT..=LONGEST_TIMEOUT).contains(&timeout)
        {
            return Err(SpecError::Timeout(timeout));
        }
        check_word("label", draft.label.as_deref())?;
        if draft.durable && draft.becomes.is_some() && draft.terminal.is_some() {
            return Err(SpecError::DurableBecomeTerminal);
        }
        if let Some(terminal) = &draft.terminal {
            terminal.check()?;
        }
        // Only the supervisor of a durable job does this.
        let is_supervised = draft.restart.is_some() || draft.warn.is_some() || draft.gpus.is_some();
        draft.durable |= is_supervised;
        if draft.becomes.is_some() && is_supervised {
            return Err(SpecError::RestartAsAnother);
        }
        if let Some(warning) = &draft.warn
            && draft.timeout.is_none_or(|limit| limit <= warning.before)
        {
            return Err(SpecError::WarningWithoutLimit);
        }
        check_env(&draft.env_names())?;
        let too_long = draft
            .variables()
            .find(|(name, value)| name.len() + value.expose_secret().len() > LONGEST_VARIABLE);
        if let Some((name, _)) = too_long {
            return Err(SpecError::LongVariable(name.to_owned()));
        }
        if let Some(length) = draft.script().map(|script| script.expose_secret().len())
            && length > LONGEST_SCRIPT
        {
            return Err(SpecError::LongScript(length));
        }
        let cwd = draft.cwd.as_deref().unwrap_or_default();
        let nul_in_env = draft.env.values().any(|value| value.expose_secret().contains('\0'));
        let setup = draft.env_setup.as_deref().unwrap_or_default();
        let places = [
            ("command", draft.command.contains('\0')),
            ("env_setup", setup.contains('\0')),
            ("cwd", cwd.contains('\0')),
            ("env", nul_in_env),
        ];
        match places.into_iter().find(|(_, found)| *found) {
            Some((what, _)) => Err(SpecError::Nul(what)),
            None => Ok(Self(draft)),
        }
    }
}

impl Deref for JobSpec {
    type Target = Draft;

    fn deref(&self) -> &Draft {
        &self.0
    }
}

/// Refuses a key with which a caller can't mean one job, such as an unset variable of a script.
pub fn check_key(key: Option<&str>) -> Result<(), SpecError> {
    if key == Some("") {
        return Err(SpecError::EmptyKey);
    }
    check_word("idempotency_key", key)
}

/// Refuses a label or key that is too long.
pub fn check_word(what: &'static str, word: Option<&str>) -> Result<(), SpecError> {
    match word {
        Some(word) if word.chars().count() > LONGEST_WORD => Err(SpecError::LongWord(what)),
        _ => Ok(()),
    }
}

fn check_turn(turn: &Turn) -> Result<(), SpecError> {
    if let Some(queue) = &turn.queue
        && !is_queue_name(queue)
    {
        return Err(SpecError::QueueName(queue.clone()));
    }
    let earlier = turn.after.len() + turn.after_ok.len();
    if earlier > MOST_EARLIER {
        return Err(SpecError::Earlier(earlier));
    }
    Ok(())
}

fn check_fleet(fleet: &FleetPlan, has_terminal: bool) -> Result<(), SpecError> {
    let count = fleet.members.len();
    if has_terminal {
        return Err(SpecError::FleetTerminal);
    }
    if !(1..=MOST_MEMBERS).contains(&count) {
        return Err(SpecError::Members(count));
    }
    if fleet.max_parallel == 0 || fleet.retries > MOST_RETRIES {
        return Err(SpecError::Rollout);
    }
    // Otherwise the names before the lines would be ambiguous.
    match fleet.members.iter().find(|name| {
        name.contains(char::is_whitespace)
            || (name.contains(['[', ']', '{', '}']) && !holds_address(name))
    }) {
        Some(name) => Err(SpecError::MemberName(name.clone())),
        None => Ok(()),
    }
}

/// The variable that marks a job's processes on its host.
const MARK: &str = "SSHJOBS_JOB";

fn check_env(names: &BTreeSet<&str>) -> Result<(), SpecError> {
    for name in names {
        let plain = name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        if *name == MARK {
            return Err(SpecError::Mark);
        }
        if name.is_empty() || !plain || name.starts_with(|c: char| c.is_ascii_digit()) {
            return Err(SpecError::EnvName((*name).to_owned()));
        }
    }
    Ok(())
}

impl Terminal {
    /// A terminal of this type and size, if they are valid.
    pub fn new(term: impl Into<String>, cols: i64, rows: i64) -> Result<Self, SpecError> {
        let size_error = SpecError::TerminalSize { cols, rows };
        let Ok(cols) = u32::try_from(cols) else { return Err(size_error) };
        let Ok(rows) = u32::try_from(rows) else { return Err(size_error) };
        let terminal = Self {
            term: term.into(),
            cols,
            rows,
            answers_queries: false,
        };
        terminal.check()?;
        Ok(terminal)
    }

    /// Answers the program's questions about its terminal: its attributes and status, and the
    /// position of the cursor. Otherwise a program that asks waits until it gives up.
    #[must_use]
    pub fn answering_queries(self) -> Self {
        Self {
            answers_queries: true,
            ..self
        }
    }

    /// Its size.
    pub fn size(&self) -> TerminalSize {
        TerminalSize {
            cols: self.cols,
            rows: self.rows,
        }
    }

    fn check(&self) -> Result<(), SpecError> {
        let cols = self.cols;
        let rows = self.rows;
        let is_name = !self.term.is_empty() && self.term.chars().all(|c| c.is_ascii_graphic());
        if !is_name || self.term.len() > LONGEST_TERM {
            return Err(SpecError::Term);
        }
        if [cols, rows].iter().any(|side| !(1..=1000).contains(side)) {
            return Err(SpecError::TerminalSize {
                cols: cols.into(),
                rows: rows.into(),
            });
        }
        Ok(())
    }
}

impl JobFacts {
    /// The hosts that it runs on: the members of a fleet, or its one host.
    pub fn hosts(&self) -> &[String] {
        match &self.fleet {
            Some(plan) => &plan.members,
            None => std::slice::from_ref(&self.host),
        }
    }

    /// The commands that the caller has asked for to set up its environment.
    pub fn asked_setup(&self) -> Option<&str> {
        self.env_setup.as_deref().filter(|_| !self.has_default_setup)
    }

    /// All that its shell runs, for people: the commands that set up its environment, and the command.
    pub fn commands(&self) -> String {
        match &self.env_setup {
            Some(setup) => format!("{setup}\n{}", self.command),
            None => self.command.clone(),
        }
    }

    /// Whether the job may have to wait before it is started: for others, or for GPUs. A fleet waits only for others, and its
    /// members for GPUs.
    pub fn may_wait(&self) -> bool {
        !self.turn.is_now() || (self.gpus.is_some() && self.fleet.is_none())
    }

    /// What makes a start the same if it is repeated with its key: not the version of its tree, which may have changed since,
    /// and not a host that was chosen for it.
    fn wanted(&self) -> Self {
        let is_chosen = self.chosen_from.is_some();
        Self {
            host: if is_chosen {
                String::new()
            } else {
                self.host.clone()
            },
            tree: None,
            env_setup: self.asked_setup().map(str::to_owned),
            has_default_setup: false,
            ..self.clone()
        }
    }
}

impl JobSpec {
    /// Whether both specifications are equal, including secrets.
    pub fn is_same(&self, other: &Self) -> bool {
        // Every field by name, so that the compiler reports one that is not compared.
        let Draft {
            facts,
            env,
            secrets,
            stdin,
            pace,
        } = &self.0;
        let is_same_env =
            env_given_by_caller(env, secrets).eq(env_given_by_caller(&other.env, &other.secrets));
        facts.wanted() == other.facts.wanted()
            && is_same_env
            && secrets.is_same(&other.secrets)
            && (secrets.stdin.is_some() || stdin.is_same(&other.stdin))
            && *pace == other.pace
    }

    /// A keyed hash (HMAC-SHA-256) of the specification, including secrets, to compare it later
    /// without keeping it.
    pub fn fingerprint(&self, key: &[u8; 32]) -> String {
        // Every field by name, so that the compiler reports one that is not hashed.
        let Draft {
            facts,
            env,
            secrets,
            stdin,
            pace,
        } = &self.0;
        let JobFacts {
            host,
            command,
            shell,
            cwd,
            label,
            timeout,
            terminal,
            becomes,
            template,
            notify,
            turn,
            durable,
            tree: _,
            has_default_setup: _,
            env_setup: _,
            restart,
            warn,
            gpus,
            fetch,
            chosen_from,
            fleet,
            member_of,
        } = facts;
        let (kind, text) = match stdin {
            _ if secrets.stdin.is_some() => ("secret", ""),
            Stdin::Open => ("open", ""),
            Stdin::Closed => ("closed", ""),
            Stdin::Text(text) => ("text", text.expose_secret()),
        };
        // A repeated start may choose another host, and means the same job.
        let host = if chosen_from.is_some() { "" } else { host };
        // The hash is stored. A renamed field or variant of these types changes their Debug text,
        // and a stored idempotency key then no longer fits its request.
        let mut plain = format!(
            "{host:?}{command:?}{cwd:?}{label:?}{timeout:?}{terminal:?}{pace:?}{durable}{kind}"
        );
        // Jobs stored before these fields existed keep their fingerprint.
        if *shell == CommandShell::Posix {
            plain.push_str(&format!("{shell:?}"));
        }
        if let Some(becomes) = becomes {
            plain.push_str(&format!("{becomes:?}"));
        }
        if let Some(template) = template {
            plain.push_str(&format!("{template:?}"));
        }
        if !notify.is_empty() {
            // Not their Debug text, which hides what differs.
            plain.push_str(&serde_json::to_string(notify).expect("receivers are plain data"));
        }
        if !turn.is_now() {
            plain.push_str(&format!("{turn:?}"));
        }
        if !secrets.is_empty() {
            plain.push_str(&format!("{:?}{:?}", secrets.env, secrets.stdin));
        }
        let env_setup = facts.asked_setup();
        let around = (env_setup, restart, warn, gpus, fetch, chosen_from);
        if around != (None, &None, &None, &None, &Vec::new(), &None) {
            plain.push_str(&format!("{around:?}"));
        }
        if fleet.is_some() || member_of.is_some() {
            plain.push_str(&format!("{fleet:?}{member_of:?}"));
        }
        let values = env_given_by_caller(env, secrets).flat_map(|(name, value)| [name, value]);
        let mut hash = Hmac::<Sha256>::new_from_slice(key).expect("a key of any length will do");
        for part in [plain.as_str(), text].into_iter().chain(values) {
            // With the length, text that moves from one part to the next changes the hash.
            hash.update(&(part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        BASE64_STANDARD.encode(hash.finalize().into_bytes())
    }
}

/// Variables with a value from the caller. Values of secrets are left out: they may be rotated between
/// two equal calls.
fn env_given_by_caller<'a>(
    env: &'a BTreeMap<String, SecretString>,
    secrets: &'a SecretUses,
) -> impl Iterator<Item = (&'a str, &'a str)> {
    env.iter()
        .filter(|(name, _)| !secrets.env.contains_key(*name))
        .map(|(name, value)| (name.as_str(), value.expose_secret()))
}

impl Stdin {
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Open, Self::Open) | (Self::Closed, Self::Closed) => true,
            (Self::Text(one), Self::Text(two)) => one.expose_secret() == two.expose_secret(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Why `true` on web1 is refused after a change.
    fn error(change: impl FnOnce(&mut Draft)) -> SpecError {
        let mut draft = Draft::new("web1", "true");
        change(&mut draft);
        JobSpec::try_from(draft).expect_err("it can't be")
    }

    #[test]
    fn what_no_host_could_run_is_refused() {
        let long = LONGEST_TIMEOUT + SHORTEST_TIMEOUT;
        assert_eq!(
            error(|draft| draft.command = " \n".into()),
            SpecError::NoCommand
        );
        assert_eq!(
            error(|draft| draft.command = "a\0b".into()),
            SpecError::Nul("command")
        );
        assert_eq!(
            error(|draft| draft.cwd = Some("\0".into())),
            SpecError::Nul("cwd")
        );
        assert_eq!(
            error(|draft| draft.timeout = Some(long)),
            SpecError::Timeout(long)
        );
        assert_eq!(
            error(|draft| draft.label = Some("x".repeat(201))),
            SpecError::LongWord("label")
        );
        let of_variable =
            |name: &str| error(|draft| drop(draft.env.insert(name.to_owned(), "v".into())));
        assert_eq!(of_variable("SSHJOBS_JOB"), SpecError::Mark);
        for name in ["", "1A", "A-B", "A=B", "A B", "A;x", "É"] {
            assert_eq!(of_variable(name), SpecError::EnvName(name.into()));
        }
    }

    #[test]
    fn a_variable_that_linux_passes_to_no_program_is_refused() {
        let draft = |length: usize| {
            let mut draft = Draft::new("web1", "true");
            draft.env.insert("A".to_owned(), "x".repeat(length).into());
            JobSpec::try_from(draft).map(drop)
        };
        assert_eq!(draft(LONGEST_VARIABLE - 1), Ok(()));
        assert_eq!(
            draft(LONGEST_VARIABLE),
            Err(SpecError::LongVariable("A".to_owned()))
        );
    }

    #[test]
    fn a_terminal_has_a_name_and_a_size() {
        assert!(Terminal::new("xterm-256color", 80, 24).is_ok());
        for (term, cols, rows) in [
            ("", 80, 24),
            ("a b", 80, 24),
            ("xterm", 0, 24),
            ("xterm", 80, 1001),
        ] {
            assert!(
                Terminal::new(term, cols, rows).is_err(),
                "{term:?} {cols} {rows}"
            );
        }
    }

    #[test]
    fn two_specs_are_the_same_only_when_all_of_them_is() {
        let spec = |change: fn(&mut Draft)| {
            let mut draft = Draft::new("web1", "true");
            change(&mut draft);
            JobSpec::try_from(draft).unwrap()
        };
        let plain = || spec(|_| ());
        assert!(plain().is_same(&plain()));
        let changes: [fn(&mut Draft); 15] = [
            |draft| draft.host.push('x'),
            |draft| draft.command.push('x'),
            |draft| draft.cwd = Some("x".into()),
            |draft| drop(draft.env.insert("X".into(), "x".into())),
            |draft| drop(draft.secrets.env.insert("X".into(), "x".into())),
            |draft| draft.secrets.stdin = Some("x".into()),
            |draft| draft.label = Some("x".into()),
            |draft| draft.stdin = Stdin::Text("x".into()),
            |draft| draft.timeout = Some(Duration::from_secs(1)),
            |draft| draft.terminal = Terminal::new("dumb", 80, 24).ok(),
            |draft| draft.pace = Pace::OfFollower,
            |draft| draft.template = Some(TemplateCall::default()),
            |draft| draft.durable = true,
            |draft| draft.fleet = Some(FleetPlan::new(vec!["x".into()])),
            |draft| draft.member_of = Some(JobId::from("x")),
        ];
        let key = [7; 32];
        assert_eq!(plain().fingerprint(&key), plain().fingerprint(&key));
        assert_ne!(plain().fingerprint(&key), plain().fingerprint(&[8; 32]));
        for change in changes {
            assert!(!spec(change).is_same(&plain()));
            assert_ne!(spec(change).fingerprint(&key), plain().fingerprint(&key));
            assert!(spec(change).is_same(&spec(change)));
        }
    }
    #[test]
    fn two_specs_with_other_values_of_the_same_secrets_are_the_same() {
        let spec = |value: &str| {
            let mut draft = Draft::new("web1", "true");
            draft.secrets.env.insert("X".into(), "db".into());
            draft.secrets.stdin = Some("db".into());
            draft.env.insert("X".into(), value.into());
            draft.stdin = Stdin::Text(value.into());
            JobSpec::try_from(draft).unwrap()
        };
        assert!(spec("one").is_same(&spec("two")));
        assert_eq!(
            spec("one").fingerprint(&[7; 32]),
            spec("two").fingerprint(&[7; 32])
        );
    }
}
