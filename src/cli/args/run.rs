use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use clap_complete::engine::ArgValueCandidates;

use super::values::{SshArgs, StreamChoice, time};
use crate::cli::candidates;
use crate::jobs::StopAfter;

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0-255  the remote command's own, whatever it is
  125    --cwd does not exist
  128+N  signal N ended the remote command
  124    --timeout ended it
  2      the command line or the configuration can't be taken
  74     our output can't be written
  141    whoever read our output has gone
  255    connection trouble: unknown host, host key, login, lost connection (as with ssh)

A command's own 255 and connection trouble are told apart by --json, whose last line is an object with state, exit, times and
bytes. Ctrl-C is forwarded as INT to the whole remote process tree; a second one kills it.

Many hosts: names, patterns over the hosts that `sshjobs hosts` lists, tag:NAME, @FILE with a host a line; !NAME leaves one out. The command
gets an empty stdin on each; each line stands behind its host's name; at the end hosts with the same result are shown together. Then the exit
code is the number of hosts on which the command failed or could not be started: 0 none, 1 to 100 so many, 101 more.

Examples:
  sshjobs run web1 -- make test
  sshjobs run web1,web2,tag:db -- uptime
  sshjobs run 'web*,!web7' --canary 1 --stop-after-failures 10% -- systemctl restart nginx
  sshjobs run @hosts.txt --joblog log --resume-failed -- ./update.sh
  sshjobs run web1 --cwd app --env CI -- ./deploy.sh < input
  sshjobs run -n --timestamps web1 -- tail -f /var/log/syslog
  sshjobs run -p 2222 -J bastion deploy@10.0.0.7 -- uptime
  sshjobs run -t web1                       a login shell")]
pub struct RunArgs {
    /// Host name or alias, as with ssh; USER@HOST too. Or many: web1,web2,tag:db, 'web*', @FILE, !NAME.
    #[arg(value_name = "HOST[,HOST…]", add = ArgValueCandidates::new(candidates::hosts))]
    pub host: String,
    /// Command; its words are joined with spaces and run by the remote shell, as with ssh. Options go before it. Without one, -t
    /// gives a login shell.
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Directory to run it in; relative to the home directory.
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Set a variable: NAME passes that of this environment on. On the host its value appears in no process list.
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Set the variables of this file: NAME=VALUE or NAME a line; # begins a comment.
    #[arg(long, value_name = "FILE")]
    pub env_file: Vec<PathBuf>,
    /// End the whole remote process tree after this time: 90, 1.5, 90s, 1m30s.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,
    /// Don't read stdin: the remote command gets an empty one.
    #[arg(long, short = 'n')]
    pub no_stdin: bool,
    /// Run it on a terminal there, whatever stdin is here. All output is then stdout.
    #[arg(long)]
    pub pty: bool,
    /// Run it on a terminal there if stdin is one here: keys go through, Ctrl-C too, and the size follows. Enter ~ . ends it.
    #[arg(long, short = 't', conflicts_with = "no_stdin")]
    pub tty: bool,
    /// Let it go on when we end: after a closed laptop `sshjobs tail -f ID` picks it up.
    #[arg(long)]
    pub durable: bool,
    /// Put the time (UTC) before each line.
    #[arg(long)]
    pub timestamps: bool,
    /// Show only this stream.
    #[arg(long, value_name = "STREAM", default_value = "both")]
    pub stream: StreamChoice,
    /// Write to the terminal whatever the host sends, unfiltered. Only for hosts that may do anything to your terminal.
    #[arg(long)]
    pub raw: bool,
    /// After the output, write a line of JSON to stdout: state, exit, times, bytes, and the error if there is one.
    #[arg(long)]
    pub json: bool,
    /// On many hosts.
    #[command(flatten)]
    pub fleet: FleetArgs,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// How a command is rolled out to many hosts.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Many hosts")]
pub struct FleetArgs {
    /// In which steps.
    #[command(flatten)]
    pub rollout: RolloutArgs,
    /// Show the output of each host in one piece, when it has ended.
    #[arg(long)]
    pub group: bool,
    /// Write a line for each host to this file, in the columns of GNU parallel.
    #[arg(long, value_name = "FILE")]
    pub joblog: Option<PathBuf>,
    /// Leave out the hosts that the joblog has; lines are added to it.
    #[arg(long, requires = "joblog")]
    pub resume: bool,
    /// Leave out the hosts on which the command has succeeded, as the joblog says.
    #[arg(long, requires = "joblog")]
    pub resume_failed: bool,
    /// Write the results as JUnit XML, for CI: a test case for each host.
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
}

impl FleetArgs {
    /// Whether any of them was said, so that even one host is treated as many.
    pub fn is_set(&self) -> bool {
        self.rollout.is_set() || self.group || self.joblog.is_some() || self.junit.is_some()
    }
}

/// In which steps a command is rolled out to many hosts.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Many hosts")]
pub struct RolloutArgs {
    /// Hosts at a time.
    #[arg(long, short = 'j', value_name = "N")]
    pub max_parallel: Option<usize>,
    /// So many hosts first; the others when all of these have succeeded.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub canary: usize,
    /// Start no further host after so many failures, or such a share of all: 3, 10%.
    #[arg(long, value_name = "N|N%")]
    pub stop_after_failures: Option<StopAfter>,
    /// Try hosts where the command could not be started so many times more.
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

/// Arguments of `spawn`.
#[derive(Debug, Args)]
#[command(after_help = "\
The job is durable: it goes on on its host under a supervisor of its own, whatever becomes of the connection and of this machine.
The host needs a POSIX shell and a writable home, and nothing installed.

Exit codes: 0 it runs; 2 the command line can't be taken; 255 it could not be started. With --attached, as `run`.

Examples:
  sshjobs spawn web1 -- make test
  id=$(sshjobs spawn web1 --key nightly-42 -- ./backup) && sshjobs wait $id
  sshjobs spawn web1 --label deploy --timeout 2h -- ./deploy.sh")]
pub struct SpawnArgs {
    /// Host name or alias, as with ssh; USER@HOST too. Or many, as with run.
    #[arg(add = ArgValueCandidates::new(candidates::hosts))]
    pub host: String,
    /// Command; its words are joined with spaces and run by the remote shell, as with ssh.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Not durable: the job ends with its connection, and with this program, which stays until then.
    #[arg(long)]
    pub attached: bool,
    /// Directory to run it in; relative to the home directory.
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Set a variable: NAME passes that of this environment on. On the host its value appears in no process list.
    #[arg(long, short, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// End the whole remote process tree after this time: 90, 1.5, 90s, 1m30s.
    #[arg(long, value_name = "TIME", value_parser = time, allow_hyphen_values = true)]
    pub timeout: Option<Duration>,
    /// Leave its stdin open, for `sshjobs write`. Without it the command reads nothing.
    #[arg(long)]
    pub stdin: bool,
    /// Run it on a terminal there. All output is then stdout.
    #[arg(long)]
    pub pty: bool,
    /// On many hosts.
    #[command(flatten)]
    pub rollout: RolloutArgs,
    /// A word to find it by in `sshjobs jobs`.
    #[arg(long, value_name = "WORD")]
    pub label: Option<String>,
    /// Idempotency key: a second spawn with the same key is the first one's job.
    #[arg(long, value_name = "KEY")]
    pub key: Option<String>,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}
