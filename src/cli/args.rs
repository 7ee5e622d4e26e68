use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Run commands on remote hosts over SSH as jobs, and follow their output by cursor.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    after_help = "\
Examples:
  sshjobs demo                          see it work; nothing has to be set up
  sshjobs run web1 -- make test         run a command; its output and exit code become ours
  sshjobs trust web1                    show a new host's key, and accept it
  sshjobs hosts                         list the hosts of ssh_config and of the configuration
  sshjobs serve                         serve MCP on stdin and stdout, for an agent

Configuration: $XDG_CONFIG_HOME/sshjobs/config.toml (default ~/.config/sshjobs/config.toml); it need not exist.
Hosts, users, ports and keys come from ssh_config; host keys must be in known_hosts."
)]
pub struct Cli {
    /// Configuration file (TOML) instead of the user's own.
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// ssh_config file instead of the user's and the system's.
    #[arg(long, global = true, value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,
    /// What to log to stderr.
    #[arg(long, global = true, value_name = "LEVEL", default_value = "warn", env = "SSHJOBS_LOG")]
    pub log: LogLevel,
    /// What to do.
    #[command(subcommand)]
    pub verb: Verb,
}

/// Reads the command line. A mistake, `--help` and `--version` end the program here.
pub fn parse() -> Cli {
    Cli::parse()
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// What went wrong.
    Error,
    /// What may go wrong.
    Warn,
    /// Connections and jobs.
    Info,
    /// Decisions.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The level as a filter for tracing. Below warnings it is for our own words only: libraries log whole messages, and
    /// those hold secrets.
    pub fn filter(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "warn,sshjobs=info",
            Self::Debug => "warn,sshjobs=debug",
            Self::Trace => "warn,sshjobs=trace",
        }
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a real job on an SSH server inside this process, and follow its output by cursor.
    Demo(DemoArgs),
    /// Serve MCP on stdin and stdout.
    Serve(ServeArgs),
    /// Run a command on a host; its output, stdin and exit code become ours.
    Run(RunArgs),
    /// List the hosts that jobs can run on, or try one.
    Hosts(HostsArgs),
    /// Show a host's key and, if you say that it is the right one, write it into known_hosts.
    Trust(TrustArgs),
}

/// Arguments of `demo`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  sshjobs demo -- 'for i in 1 2 3; do echo $i; sleep 1; done; exit 3'")]
pub struct DemoArgs {
    /// Command to run instead of the demo's own.
    #[arg(last = true, value_name = "COMMAND")]
    pub command: Vec<String>,
}

/// Arguments of `serve`.
#[derive(Debug, Args)]
#[command(after_help = "\
Set it up in an MCP client as the command `sshjobs` with the argument `serve`. stdout is the MCP wire; logs go to stderr.
Jobs that still run when the client goes away are ended.

Examples:
  claude mcp add sshjobs -- sshjobs serve
  sshjobs --log info serve")]
pub struct ServeArgs {}

/// Arguments of `run`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes:
  0-255  the remote command's own, whatever it is
  125    --cwd does not exist
  128+N  signal N ended the remote command
  124    --timeout ended it
  2      the command line or the configuration can't be taken
  141    whoever read our output has gone
  255    connection trouble: unknown host, host key, login, lost connection (as with ssh)

Ctrl-C is forwarded as INT to the whole remote process tree; a second one kills it.

Examples:
  sshjobs run web1 -- make test
  sshjobs run web1 --cwd app --env CI -- ./deploy.sh < input
  sshjobs run -n --timestamps web1 -- tail -f /var/log/syslog
  sshjobs run -t web1 -- sudo -i")]
pub struct RunArgs {
    /// Host name or alias, as with ssh.
    pub host: String,
    /// Command; its words are joined with spaces and run by the remote shell, as with ssh. Options go before it.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    pub command: Vec<String>,
    /// Directory to run it in; relative to the home directory.
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Pass a variable of this environment on. Its value never appears in a process list.
    #[arg(long, short, value_name = "NAME")]
    pub env: Vec<String>,
    /// End the whole remote process tree after so many seconds.
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// Don't read stdin: the remote command gets an empty one.
    #[arg(long, short = 'n')]
    pub no_stdin: bool,
    /// Run it on a terminal there, whatever stdin is here. All output is then stdout.
    #[arg(long)]
    pub pty: bool,
    /// Run it on a terminal there if stdin is one here: keys go through, Ctrl-C too, and the size follows. Enter ~ . ends it.
    #[arg(long, short = 't', conflicts_with = "no_stdin")]
    pub tty: bool,
    /// Put the time (UTC) before each line.
    #[arg(long)]
    pub timestamps: bool,
    /// Show only this stream.
    #[arg(long, value_name = "STREAM", default_value = "both")]
    pub stream: StreamChoice,
    /// Write to the terminal whatever the host sends, unfiltered. Only for hosts that may do anything to your terminal.
    #[arg(long)]
    pub raw: bool,
}

/// Which of the streams to show.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum StreamChoice {
    /// Both, each where it belongs.
    Both,
    /// Only standard output.
    Stdout,
    /// Only standard error.
    Stderr,
}

/// Arguments of `trust`.
#[derive(Debug, Args)]
#[command(after_help = "\
Compare the fingerprint with what the host itself says, over a way you trust: its console, its administrator, or the output of
`ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` there. A host that is listed with another key is refused.

Exit codes: 0 it is trusted now, or was before; 1 you said no; 255 the host or its key can't be had, or is not the one expected.

Examples:
  sshjobs trust web1
  sshjobs trust web1 --fingerprint SHA256:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU   for scripts")]
pub struct TrustArgs {
    /// Host name or alias, as with ssh.
    pub host: String,
    /// Don't ask: the key must be the one with this SHA-256 fingerprint.
    #[arg(long, value_name = "SHA256:…")]
    pub fingerprint: Option<String>,
}

/// Arguments of `hosts`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sshjobs hosts\n  sshjobs hosts web1        connect, and say what came of it\n  sshjobs hosts --json | jq"
)]
pub struct HostsArgs {
    /// Connect to this host and report what came of it.
    pub host: Option<String>,
    /// List only hosts with this tag (`tags` of their [hosts.NAME] table).
    #[arg(long, value_name = "TAG", conflicts_with = "host")]
    pub tag: Option<String>,
    /// Write JSON.
    #[arg(long)]
    pub json: bool,
}
