//! Commands, built step by step before they are started.

use std::fmt::Display;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use crate::jobs::{Stdin, Terminal};
use sshjobs_job::{Become, CommandShell, Draft, JobId, SCRIPT, interpreter_of, quote_word};

/// A command to run as a job, built step by step. It can be started any number of times.
///
/// Its words are quoted: [`new`](Self::new) and [`arg`](Self::arg) take any text, and no shell
/// interprets it. [`script`](Self::script) sends a whole program. [`shell`](Self::shell) takes a command line.
#[derive(Clone, Debug)]
#[must_use = "a command does nothing before it is started"]
pub struct Command {
    pub(super) draft: Draft,
    pub(super) idempotency_key: Option<String>,
    pub(super) reason: Option<String>,
    pub(super) start_within: Duration,
}

/// Default time limit for a host to start a command.
const PATIENCE: Duration = Duration::from_secs(60);

impl Command {
    /// A program, by its name or path. It and its arguments reach the host as they are, whatever they
    /// contain and whichever login shell the account has.
    ///
    /// ```
    /// # use sshjobs_core::jobs::Command;
    /// let list = Command::new("ls").arg("-l").arg("it's; mine");
    /// assert_eq!(list.line(), r"ls -l 'it'\''s; mine'");
    /// ```
    pub fn new(program: impl Display) -> Self {
        let mut command = Self::shell(quote_word(&program.to_string()));
        command.draft.shell = CommandShell::Posix;
        command
    }

    /// A script of at most a mebibyte, for a program of the host. `interpreter` is the program and its
    /// options, separated by spaces. If it is `None`, the script's first line names it (`#!`), or it is `sh`.
    /// Arguments of the script follow by [`arg`](Self::arg).
    ///
    /// The script is sent beside the command line: it appears in no process list. The host keeps it in a
    /// private file until the job ends.
    ///
    /// ```
    /// # use sshjobs_core::jobs::Command;
    /// let check = Command::script(Some("python3 -u"), "import sys; print(sys.argv[1])").arg("a b");
    /// assert_eq!(check.line(), r#"python3 -u "$SSHJOBS_SCRIPT" 'a b'"#);
    /// ```
    pub fn script(interpreter: Option<&str>, script: impl Into<SecretString>) -> Self {
        let script = script.into();
        let words: Vec<&str> = match interpreter {
            Some(words) => words.split_whitespace().collect(),
            None => interpreter_of(script.expose_secret()),
        };
        let (program, options) = words.split_first().unwrap_or((&"sh", &[]));
        let mut command = Self::new(program).args(options);
        command.draft.command.push_str(&format!(" \"${SCRIPT}\""));
        command.draft.set_script(script);
        command
    }

    /// A command line, which the account's login shell interprets as `ssh HOST LINE` would. Nothing is
    /// quoted: a text from elsewhere may become a part of the program. For such a text, use
    /// [`arg`](Self::arg).
    pub fn shell(line: impl Into<String>) -> Self {
        Self::from(Draft {
            stdin: Stdin::Closed,
            ..Draft::new("", line)
        })
    }

    /// Its specification so far.
    pub fn into_draft(self) -> Draft {
        self.draft
    }

    /// The command line.
    pub fn line(&self) -> &str {
        &self.draft.command
    }

    /// Appends an argument, quoted for a POSIX shell where it needs that.
    pub fn arg(mut self, argument: impl Display) -> Self {
        self.draft.command.push(' ');
        self.draft.command.push_str(&quote_word(&argument.to_string()));
        self
    }

    /// Appends arguments, each as [`arg`](Self::arg) does.
    pub fn args(self, arguments: impl IntoIterator<Item = impl Display>) -> Self {
        arguments.into_iter().fold(self, Self::arg)
    }

    /// Sets the working directory, relative to the home directory; `~` is accepted. If it does not
    /// exist, the job exits with 125.
    pub fn current_dir(mut self, directory: impl Into<String>) -> Self {
        self.draft.cwd = Some(directory.into());
        self
    }

    /// Sets a variable. Its value is sent on stdin and appears in no process list.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<SecretString>) -> Self {
        self.draft.env.insert(name.into(), value.into());
        self
    }

    /// Sets the command's stdin. It is closed by default; [`Stdin::Open`] is for later writes.
    pub fn stdin(mut self, stdin: Stdin) -> Self {
        self.draft.stdin = stdin;
        self
    }

    /// Ends the whole process tree after this time; a millisecond to a year.
    pub fn timeout(mut self, limit: Duration) -> Self {
        self.draft.timeout = Some(limit);
        self
    }

    /// Runs it on a pseudo-terminal. All output is then stdout.
    pub fn terminal(mut self, terminal: Terminal) -> Self {
        self.draft.terminal = Some(terminal);
        self
    }

    /// Runs it as another user of the host, in that user's `/bin/sh`. The working directory stays
    /// relative to the account's home directory.
    pub fn become_user(mut self, user: Become) -> Self {
        self.draft.becomes = Some(user);
        self
    }

    /// Lets the job outlive this process: a supervisor on its host keeps it and its output,
    /// whatever happens to the connection and this process, and following resumes automatically.
    /// The host needs a POSIX shell and a writable home.
    pub fn durable(mut self) -> Self {
        self.draft.durable = true;
        self
    }

    /// Sets a label to find the job by, up to 200 characters.
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.draft.label = Some(label.into());
        self
    }

    /// Starts it only after another job has ended, whatever its outcome. Until then it is
    /// [`Phase::Queued`](crate::jobs::Phase). The caller must see that job.
    pub fn after(mut self, job: &str) -> Self {
        self.draft.turn.after.push(JobId::from(job));
        self
    }

    /// Starts it only after another job has succeeded. If that job fails, this one is not started.
    pub fn after_success(mut self, job: &str) -> Self {
        self.draft.turn.after_ok.push(JobId::from(job));
        self
    }

    /// Starts it in a queue, which runs one job at a time by default. Queues need stored jobs, and are
    /// shared by all processes with the same store.
    pub fn queue(mut self, name: impl Into<String>) -> Self {
        self.draft.turn.queue = Some(name.into());
        self
    }

    /// Sets an idempotency key, up to 200 characters. When the caller starts the same command with
    /// the same key again, the first start's job is returned. A different command with this key is
    /// an error.
    pub fn idempotency_key(mut self, key: impl Into<String>) -> Self {
        self.idempotency_key = Some(key.into());
        self
    }

    /// Sets why the command is needed, up to 200 characters, for approvers: a rule of the policy may ask
    /// them. The start then waits 20 seconds for an answer, and is refused if there is none. The same
    /// start succeeds, once, after they have agreed.
    pub fn reason(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }

    /// Sets how long a start waits for the host, by default a minute. After that it returns a job
    /// that is still starting.
    pub fn start_within(mut self, patience: Duration) -> Self {
        self.start_within = patience;
        self
    }
}

/// The command of a draft; its host is set when it is started.
impl From<Draft> for Command {
    fn from(draft: Draft) -> Self {
        Self {
            draft,
            idempotency_key: None,
            reason: None,
            start_within: PATIENCE,
        }
    }
}
