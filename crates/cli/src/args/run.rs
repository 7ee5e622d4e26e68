//! Arguments of `run` and `spawn`, and the options for many hosts that they share.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use clap_complete::engine::{ArgValueCandidates, ArgValueCompleter};
use secrecy::SecretString;

use super::candidates;
use super::policy::parameter;
use super::values::{BecomeArgs, SshArgs, StreamChoice, time};
use sshjobs_core::jobs::{JobTree, StopAfter};

/// Heading of the options for work on other machines.
const ELSEWHERE: &str = "Work on other machines (docs/elsewhere.md)";

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
The exit code is that of the command, 128+N if signal N ended it, 124 after --timeout, 255 if the
connection failed as with ssh (--json tells these apart), and 2 for a mistake here. `sshjobs help
exit-codes` lists all. Ctrl-C sends INT to the whole remote process tree; a second Ctrl-C kills it.

Many hosts: names, patterns and tag:NAME select hosts that `sshjobs hosts` lists, @FILE reads one
host per line, !NAME excludes one. The exit code is then the number of hosts on which the command
failed. `sshjobs help fleets` explains it.

Examples:
  sshjobs run web1 -- make test
  sshjobs run web1,web2,tag:db -- uptime
  sshjobs run 'web*,!web7' --canary 1 --stop-after-failures 10% -- systemctl restart nginx
  sshjobs run @hosts.txt --joblog log --resume-failed -- ./update.sh
  sshjobs run web1 --cwd app --env CI -- ./deploy.sh < input
  sshjobs run db1 --secret-env PGPASSWORD=db -- pg_dump app > app.sql
  sshjobs run -b web1 -- systemctl restart nginx
  sshjobs run --script check.py web1 -- --fast
  sshjobs run --sync . --restart on-failure:3 any:tag:gpu -- ./train.sh
  sshjobs run -t web1                       a login shell")]
pub struct RunArgs {
    /// Host name or alias, as in ssh, or USER@HOST. Several hosts: web1,web2,tag:db, 'web*', @FILE,
    /// !NAME.
    #[arg(value_name = "HOST[,HOST…]", add = ArgValueCompleter::new(candidates::many_hosts))]
    pub host: String,
    /// Command. Its words are joined with spaces and run by the remote shell, as in ssh. Options go
    /// before it. Without a command, -t starts a login shell.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// The command's surroundings.
    #[command(flatten)]
    pub start: StartArgs,
    /// Don't read stdin; the remote command gets an empty one.
    #[arg(long, short = 'n')]
    pub no_stdin: bool,
    /// Run on a terminal there; all output is stdout.
    #[arg(long)]
    pub pty: bool,
    /// Run on a terminal there. Enter ~ . ends it, Enter ~ & leaves it running. -tt: also if stdin is
    /// no terminal.
    #[arg(long, short = 't', conflicts_with_all = ["no_stdin", "secret_stdin"], action = clap::ArgAction::Count)]
    pub tty: u8,
    /// Outlive this program: `sshjobs tail -f ID` continues it.
    #[arg(long)]
    pub durable: bool,
    /// Start a durable job and print its id, as `sshjobs spawn` does.
    #[arg(long, short, conflicts_with_all = ["tty", "timestamps", "raw", "stream", "joblog", "junit", "group"])]
    pub detach: bool,
    /// Label by which `sshjobs jobs` finds the job.
    #[arg(long, value_name = "WORD", value_parser = NonEmptyStringValueParser::new())]
    pub label: Option<String>,
    /// Print the time (UTC) before each line.
    #[arg(long)]
    pub timestamps: bool,
    /// Show only this stream.
    #[arg(long, value_name = "STREAM", default_value = "both")]
    pub stream: StreamChoice,
    /// Write output to the terminal unfiltered: only of hosts that you trust.
    #[arg(long)]
    pub raw: bool,
    /// Write a last line of JSON: state, exit, times, bytes, any error.
    #[arg(long)]
    pub json: bool,
    /// Many hosts.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Another user.
    #[command(flatten)]
    pub becomes: BecomeArgs,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

impl RunArgs {
    /// The same command as arguments of `spawn`.
    pub(crate) fn into_spawn(self) -> SpawnArgs {
        SpawnArgs {
            host: self.host,
            command: self.command,
            start: self.start,
            attached: false,
            stdin: false,
            pty: self.pty,
            label: self.label,
            key: None,
            json: self.json,
            rollout: self.fleet.rollout,
            becomes: self.becomes,
            ssh: self.ssh,
        }
    }
}

/// Options of every start, by `run` and by `spawn`.
#[derive(Clone, Debug, Default, Args)]
pub struct StartArgs {
    /// Working directory, relative to the home directory.
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Set a variable, unseen by process lists; NAME alone copies it.
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Secrets.
    #[command(flatten)]
    pub secrets: SecretArgs,
    /// Set variables from a file with lines NAME=VALUE or NAME.
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// End the remote process tree after this time: 90, 1m30s.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,
    /// Notify this name, URL or command when the job ends.
    #[arg(long, value_name = "TARGET")]
    pub notify: Vec<String>,
    /// Its turn.
    #[command(flatten)]
    pub turn: TurnArgs,
    /// Why it is needed, for a person who may have to approve it.
    #[arg(long, value_name = "TEXT")]
    pub reason: Option<String>,
    /// Run these first, in the same shell: 'module load cuda'.
    #[arg(long, value_name = "COMMANDS", help_heading = ELSEWHERE)]
    pub env_setup: Option<String>,
    /// A working tree.
    #[command(flatten)]
    pub tree: TreeArgs,
    /// Restarts.
    #[command(flatten)]
    pub restart: RestartArgs,
    /// A template.
    #[command(flatten)]
    pub template: TemplateArgs,
    /// How the command is written.
    #[command(flatten)]
    pub writing: WritingArgs,
    /// Values that `rerun` has asked for. They are not on the command line.
    #[arg(skip)]
    pub known_env: BTreeMap<String, SecretString>,
}

impl StartArgs {
    /// Whether a template or a script takes the place of the command.
    pub(crate) fn has_other_command(&self) -> bool {
        self.template.template.is_some() || self.writing.script.is_some()
    }
}

/// Files that go to the host first, and those that come back.
#[derive(Clone, Debug, Default, Args)]
pub struct TreeArgs {
    /// Send what has changed in this directory, and run there.
    #[arg(long, value_name = "DIR[:PATH]", conflicts_with = "template", help_heading = ELSEWHERE)]
    pub sync: Option<String>,
    /// Leave out what this pattern names, as in a .gitignore.
    #[arg(long, value_name = "PATTERN", requires = "sync", allow_hyphen_values = true, help_heading = ELSEWHERE)]
    pub exclude: Vec<String>,
    /// Copy these files back at its end: out.csv, 'runs/**'.
    #[arg(long, value_name = "GLOB", help_heading = ELSEWHERE)]
    pub fetch: Vec<String>,
    /// The tree of the job that `rerun` repeats.
    #[arg(skip)]
    pub earlier: Option<JobTree>,
}

/// Restarts of a command on its host.
#[derive(Clone, Debug, Default, Args)]
pub struct RestartArgs {
    /// Start it again on its host: on-failure, on-failure:3, always.
    #[arg(long, value_name = "WHEN[:N]", help_heading = ELSEWHERE)]
    pub restart: Option<String>,
    /// Only after this exit status, or output with a match.
    #[arg(long, value_name = "STATUS|REGEX", requires = "restart", help_heading = ELSEWHERE)]
    pub retry_if: Vec<String>,
    /// Also after a reboot of the host.
    #[arg(long, requires = "restart", help_heading = ELSEWHERE)]
    pub restart_after_reboot: bool,
    /// Send a signal some time before --timeout: USR1@2m.
    #[arg(long, value_name = "SIGNAL@TIME", requires = "timeout", help_heading = ELSEWHERE)]
    pub warn: Option<String>,
    /// Wait for free GPUs, and claim them: 2, 2:A100, 1:40GB.
    #[arg(long, value_name = "N[:KIND]", help_heading = ELSEWHERE)]
    pub gpus: Option<String>,
    /// With any(…): prefer the host with the most jobs.
    #[arg(long, help_heading = ELSEWHERE)]
    pub pack: bool,
}

/// How a command is written, if not as a command line.
#[derive(Clone, Debug, Default, Args)]
pub struct WritingArgs {
    /// COMMAND is a program and its arguments, without a shell.
    #[arg(long, conflicts_with_all = ["script", "template"])]
    pub argv: bool,
    /// Run this script, with COMMAND as its arguments; - is stdin.
    #[arg(long, value_name = "FILE", conflicts_with = "template")]
    pub script: Option<PathBuf>,
    /// Program for the script. Default: its #! line, or sh.
    #[arg(long, value_name = "PROGRAM", requires = "script")]
    pub interpreter: Option<String>,
}

/// Jobs and a queue that a job waits for.
#[derive(Clone, Debug, Default, Args)]
pub struct TurnArgs {
    /// Start after this job has ended, however it ends.
    #[arg(long, value_name = "JOB", add = ArgValueCandidates::new(candidates::jobs))]
    pub after: Vec<String>,
    /// Start after this job, if it succeeds.
    #[arg(long, value_name = "JOB", add = ArgValueCandidates::new(candidates::jobs))]
    pub after_ok: Vec<String>,
    /// Wait for a place in this queue, which runs its jobs one by one.
    #[arg(long, value_name = "NAME")]
    pub queue: Option<String>,
}

impl TurnArgs {
    /// Whether the job has to wait.
    pub(crate) fn is_given(&self) -> bool {
        !self.after.is_empty() || !self.after_ok.is_empty() || self.queue.is_some()
    }
}

/// A command template of the policy, in place of a command.
#[derive(Clone, Debug, Default, Args)]
pub struct TemplateArgs {
    /// A command template of the policy; see `sshjobs hosts`.
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    pub template: Option<String>,
    /// Value of a parameter of the template.
    #[arg(long = "param", value_name = "NAME=VALUE", requires = "template", value_parser = parameter)]
    pub params: Vec<(String, String)>,
}

/// Secrets of the configuration that a command gets.
#[derive(Clone, Debug, Default, Args)]
pub struct SecretArgs {
    /// Set a variable to a secret; output shows its name.
    #[arg(long, value_name = "NAME=SECRET", value_parser = secret_variable)]
    pub secret_env: Vec<(String, String)>,
    /// Use a secret of the configuration as stdin, not this program's.
    #[arg(long, value_name = "SECRET")]
    pub secret_stdin: Option<String>,
}

/// Parses a variable and the name of its secret.
fn secret_variable(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, secret)) if !name.is_empty() && !secret.is_empty() => {
            Ok((name.to_owned(), secret.to_owned()))
        }
        Some(_) | None => Err("use NAME=SECRET, such as PGPASSWORD=db".to_owned()),
    }
}

/// How a command runs on many hosts.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Many hosts")]
pub struct FleetArgs {
    /// In which steps.
    #[command(flatten)]
    pub rollout: RolloutArgs,
    /// Show the output of each host as one block, once it has ended.
    #[arg(long)]
    pub group: bool,
    /// Write one line per host to this file, as GNU parallel does.
    #[arg(long, value_name = "FILE")]
    pub joblog: Option<PathBuf>,
    /// Skip hosts that are in the joblog, and append to it.
    #[arg(long, requires = "joblog")]
    pub resume: bool,
    /// Skip hosts where it succeeded, according to the joblog.
    #[arg(long, requires = "joblog")]
    pub resume_failed: bool,
    /// Write the results as JUnit XML, a test case for each host.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

impl FleetArgs {
    /// Whether any option was given. Then even one host is handled as a fleet.
    pub fn is_set(&self) -> bool {
        self.rollout.is_set() || self.group || self.joblog.is_some() || self.junit.is_some()
    }
}

/// The steps in which a command runs on many hosts.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Many hosts")]
pub struct RolloutArgs {
    /// Maximum hosts at the same time.
    #[arg(long, short = 'j', value_name = "N")]
    pub max_parallel: Option<usize>,
    /// Start this many first, and others once these succeed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub canary: usize,
    /// Start no more after this many failures, or this share: 10%.
    #[arg(long, value_name = "N|N%")]
    pub stop_after_failures: Option<StopAfter>,
    /// Retries of a start that failed.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub retries: u32,
}

impl RolloutArgs {
    fn is_set(&self) -> bool {
        self.max_parallel.is_some()
            || self.canary > 0
            || self.stop_after_failures.is_some()
            || self.retries > 0
    }
}

/// Arguments of `rerun`.
#[derive(Debug, Args)]
#[command(after_help = "\
The same command, hosts, directory, user, time limit and terminal. Values of variables are not stored:
you are asked for them. Text for stdin and scripts are not stored either.

Exit codes: those of run; with -d, of spawn.

Examples:
  sshjobs rerun last
  sshjobs rerun -d web1-7f3k9q2m           start it, and print the id of the new job
  sshjobs rerun last --env TOKEN           with TOKEN of this environment")]
pub struct RerunArgs {
    /// The job's id, the unique start of one, or `last`.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Start a durable job and print its id, as `sshjobs spawn` does.
    #[arg(long, short)]
    pub detach: bool,
    /// Set a variable; NAME alone copies it from this environment.
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Write a last line of JSON: state, exit, times, bytes, any error.
    #[arg(long)]
    pub json: bool,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// Arguments of `spawn`.
#[derive(Debug, Args)]
#[command(after_help = "\
The job is durable: a supervisor on its host keeps it running when the connection or this machine
is gone. The host needs a POSIX shell and a writable home directory, and no package.

Exit codes: 0 the job runs; 2 invalid command line; 255 it could not be started. With --attached,
as `run`.

Examples:
  sshjobs spawn web1 -- make test
  id=$(sshjobs spawn web1 --key nightly-42 -- ./backup) && sshjobs wait $id
  sshjobs spawn web1 --label deploy --timeout 2h -- ./deploy.sh")]
pub struct SpawnArgs {
    /// Host name or alias, as in ssh, or USER@HOST. Several hosts as in run.
    #[arg(add = ArgValueCompleter::new(candidates::many_hosts))]
    pub host: String,
    /// Command. Its words are joined with spaces and run by the remote shell, as in ssh.
    #[arg(
        trailing_var_arg = true,
        required_unless_present_any = ["template", "script"],
        value_name = "COMMAND"
    )]
    pub command: Vec<String>,
    /// The command's surroundings.
    #[command(flatten)]
    pub start: StartArgs,
    /// Not durable: the job ends with its connection and with this program, which stays until then.
    #[arg(long)]
    pub attached: bool,
    /// Keep its stdin open for `sshjobs write`, as with --pty. Without this, stdin is empty.
    #[arg(long, conflicts_with = "secret_stdin")]
    pub stdin: bool,
    /// Run on a terminal there, for `sshjobs attach` and `sshjobs write`. All output is then stdout.
    #[arg(long)]
    pub pty: bool,
    /// Label by which `sshjobs jobs` finds the job.
    #[arg(long, value_name = "WORD", value_parser = NonEmptyStringValueParser::new())]
    pub label: Option<String>,
    /// Idempotency key: a second spawn with the same key returns the first job.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
    // Behind the options of its own: a heading is in force until the next one.
    /// Many hosts.
    #[command(flatten)]
    pub rollout: RolloutArgs,
    /// Another user.
    #[command(flatten)]
    pub becomes: BecomeArgs,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}
