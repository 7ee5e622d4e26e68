use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::jobs::StopAfter;
use crate::remote::ServerAddress;
use clap_complete::engine::ArgValueCandidates;

use super::candidates;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use tracing_subscriber::filter::{LevelFilter, Targets};

/// Run commands on remote hosts over SSH as jobs, and follow their output by cursor.
#[derive(Debug, Parser)]
#[command(
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  sshjobs demo                          see it work; nothing has to be set up
  sshjobs run web1 -- make test         run a command; its output and exit code become ours
  sshjobs trust web1                    show a new host's key, and accept it
  sshjobs spawn web1 -- make test       start a job that goes on without us; prints its id
  sshjobs jobs                          list jobs: yours, and those that agents of yours have started
  sshjobs tail -f ID                    watch one
  sshjobs hosts                         list the hosts of ssh_config and of the configuration
  sshjobs run 'web*' -- uptime          run it on many hosts
  sshjobs serve                         serve MCP on stdin and stdout, for an agent
  sshjobs help exit-codes               explain a topic: exit-codes, waiting, durable, fleets, trust

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
    /// Directory for records and output of jobs instead of $XDG_STATE_HOME/sshjobs (~/.local/state/sshjobs).
    #[arg(long, global = true, value_name = "DIR")]
    pub state_dir: Option<PathBuf>,
    /// Let a running server do it: its URL, or the path of its socket. Hosts, jobs and configuration are then the server's.
    #[arg(long, global = true, value_name = "URL|SOCKET", env = "SSHJOBS_SERVER")]
    pub server: Option<ServerAddress>,
    /// File with the token to show there; else the variable SSHJOBS_TOKEN has it.
    #[arg(long, global = true, value_name = "FILE", requires = "server")]
    pub token_file: Option<PathBuf>,
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
    /// The level as a filter for tracing. It is for our own words: libraries warn of every message that a host or a client gets
    /// wrong, as fast as it comes, and below warnings log whole messages, which hold secrets.
    pub fn filter(self) -> Targets {
        let (libraries, ours) = match self {
            Self::Off => (LevelFilter::OFF, LevelFilter::OFF),
            Self::Error => (LevelFilter::OFF, LevelFilter::ERROR),
            Self::Warn => (LevelFilter::OFF, LevelFilter::WARN),
            Self::Info => (LevelFilter::OFF, LevelFilter::INFO),
            Self::Debug => (LevelFilter::WARN, LevelFilter::DEBUG),
            Self::Trace => (LevelFilter::WARN, LevelFilter::TRACE),
        };
        Targets::new().with_default(libraries).with_target("sshjobs", ours)
    }
}

/// What to do.
#[derive(Debug, Subcommand)]
pub enum Verb {
    /// Run a real job on an SSH server inside this process, and follow its output by cursor.
    Demo(DemoArgs),
    /// Serve MCP on stdin and stdout, or MCP and a JSON API over HTTP.
    Serve(ServeArgs),
    /// Make, list and revoke the tokens that callers of a server show.
    Token(TokenArgs),
    /// Run a command on a host, or on many; its output, stdin and exit code become ours.
    Run(RunArgs),
    /// Start a job that goes on without us, and print its id.
    Spawn(SpawnArgs),
    /// Show a job's output, and follow it.
    Tail(TailArgs),
    /// Show a part of a job's output by its position.
    Read(ReadArgs),
    /// Look for a pattern in a job's output.
    Search(SearchArgs),
    /// Write to a job's stdin.
    Write(WriteArgs),
    /// Signal a job's process tree.
    Signal(SignalArgs),
    /// Wait for the end of jobs.
    Wait(WaitArgs),
    /// List jobs, of all sshjobs processes of this user.
    Jobs(JobsArgs),
    /// Remove jobs that have ended, with their output.
    Forget(ForgetArgs),
    /// List the hosts that jobs can run on, or try one.
    Hosts(HostsArgs),
    /// Connect to hosts and tell how that went: time, server, login shell.
    Ping(PingArgs),
    /// Show a host's key and, if you say that it is the right one, write it into known_hosts.
    Trust(TrustArgs),
    /// Print what makes a shell complete our words, with hosts, tags and jobs.
    Completions(CompletionsArgs),
    /// Write the man pages into a directory.
    Man(ManArgs),
    /// Explain a topic, or a verb.
    Help(HelpArgs),
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
#[command(group(ArgGroup::new("served").args(["http", "socket"]).multiple(true)))]
#[command(after_help = "\
Without options: MCP on stdin and stdout, for one agent. Set it up in an MCP client as the command `sshjobs` with the argument `serve`. stdout is the MCP wire; logs go to stderr.
Jobs that still run when the client goes away are ended, but for durable ones. On a terminal you can type JSON-RPC; Ctrl-D ends it.

With --http or --socket: a server for many. MCP is at /mcp, a JSON API at /v1/ (described by /v1/openapi.json), /healthz and /readyz
tell how the server is. Callers show a token, which `sshjobs token new NAME` makes, as `Authorization: Bearer TOKEN`; each sees its own
jobs. TERM ends it: waits are answered, jobs that are not durable are ended. docs/server.md tells more.

Examples:
  claude mcp add sshjobs -- sshjobs serve
  sshjobs --log info serve
  sshjobs serve --http 127.0.0.1:8022
  sshjobs serve --http 0.0.0.0:8443 --tls-cert fullchain.pem --tls-key key.pem --allow-host jobs.example.com
  sshjobs serve --socket $XDG_RUNTIME_DIR/sshjobs.sock --no-auth")]
pub struct ServeArgs {
    /// Serve HTTP on this address; port 0 takes a free one.
    #[arg(long, value_name = "ADDR:PORT")]
    pub http: Option<SocketAddr>,
    /// Serve HTTP on a unix socket, which only you may connect to.
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Certificate chain (PEM); read again when it changes.
    #[arg(long, value_name = "FILE", requires = "http", requires = "tls_key")]
    pub tls_cert: Option<PathBuf>,
    /// Its private key (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub tls_key: Option<PathBuf>,
    /// Let in everybody who can connect, as you. Only on loopback addresses and the socket.
    #[arg(long, requires = "served")]
    pub no_auth: bool,
    /// A name by which clients call the server; loopback names and ADDR are always taken.
    #[arg(long, value_name = "NAME", requires = "http")]
    pub allow_host: Vec<String>,
    /// An origin whose web pages may call the server, such as `https://app.example.com`.
    #[arg(long, value_name = "ORIGIN", requires = "served")]
    pub allow_origin: Vec<String>,
    /// Path below which everything lies, for a proxy that does not take it away.
    #[arg(long, value_name = "/PATH", value_parser = prefix, requires = "served")]
    pub prefix: Option<String>,
    /// Address at which browsers reach the server through a proxy: for the pages that ask people what a login needs.
    #[arg(long, value_name = "URL", value_parser = public_url, requires = "http")]
    pub public_url: Option<String>,
    /// Show metrics for Prometheus on this address, at /metrics, without tokens.
    #[arg(long, value_name = "ADDR:PORT", requires = "served")]
    pub metrics: Option<SocketAddr>,
    /// Offer only what changes nothing: reading, searching, waiting and listing.
    #[arg(long)]
    pub read_only: bool,
}

/// Reads a path that others are put behind.
fn prefix(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    let path = text.trim_end_matches('/');
    if path.starts_with('/') && !path.contains("//") && path.chars().all(is_plain) {
        Ok(path.to_owned())
    } else {
        Err("use a path such as /sshjobs".to_owned())
    }
}

/// Reads an address that paths are put behind.
fn public_url(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_graphic() && !matches!(c, '?' | '#');
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    if rest.is_some_and(|rest| !rest.is_empty() && rest.chars().all(is_plain)) {
        Ok(text.trim_end_matches('/').to_owned())
    } else {
        Err("use a URL such as https://jobs.example.com/sshjobs".to_owned())
    }
}

/// Arguments of `token`.
#[derive(Debug, Args)]
#[command(after_help = "\
Tokens lie in the state directory, as hashes; servers with this state directory see a change at once.

Examples:
  sshjobs token new ci --hosts 'web*,tag:ci' --expires 30d
  sshjobs token new dashboard --role read
  sshjobs token list
  sshjobs token revoke ci")]
pub struct TokenArgs {
    /// What to do.
    #[command(subcommand)]
    pub verb: TokenVerb,
}

/// What to do with tokens.
#[derive(Debug, Subcommand)]
pub enum TokenVerb {
    /// Make a token, and print it: it is shown only now.
    New(NewTokenArgs),
    /// List the tokens there are.
    List(ListTokensArgs),
    /// Revoke a token. Servers refuse it from now on; jobs go on.
    Revoke {
        /// The caller whose token it is.
        name: String,
    },
}

/// Arguments of `token new`.
#[derive(Debug, Args)]
pub struct NewTokenArgs {
    /// The caller's name: its jobs belong to it.
    pub name: String,
    /// What the caller may do.
    #[arg(long, value_enum, default_value = "run")]
    pub role: RoleChoice,
    /// On which hosts: names with * and ?, and tag:NAME, separated by commas; ! excludes. Without it on all.
    #[arg(long, value_name = "LIST", value_parser = host_list)]
    pub hosts: Option<String>,
    /// For how long it is valid: 12h, 30d. Without it until it is revoked.
    #[arg(long, value_name = "TIME", value_parser = lifetime)]
    pub expires: Option<Duration>,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// Reads a list of hosts; an empty one is most likely a variable that is not set.
fn host_list(text: &str) -> Result<String, String> {
    let is_pattern = |pattern: &str| {
        let name = pattern.trim().trim_start_matches('!').trim_start_matches("tag:");
        !name.is_empty() && !name.contains(|c: char| c.is_whitespace() || c.is_control())
    };
    if text.split(',').all(is_pattern) {
        return Ok(text.to_owned());
    }
    Err("use names, patterns and tag:NAME, separated by commas; leave --hosts away for all hosts".to_owned())
}

/// Reads for how long a token is valid.
fn lifetime(text: &str) -> Result<Duration, String> {
    let (least, most) = (Duration::from_secs(1), Duration::from_secs(100 * 365 * 24 * 3600));
    let lifetime = humantime::parse_duration(text).ok().filter(|lifetime| (least..=most).contains(lifetime));
    lifetime.ok_or_else(|| "use 1s to 100years, as 12h or 30d".to_owned())
}

/// Arguments of `token list`.
#[derive(Debug, Args)]
pub struct ListTokensArgs {
    /// Write a line of JSON for each.
    #[arg(long)]
    pub json: bool,
}

/// What a caller may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RoleChoice {
    /// See hosts and its own jobs, and read output.
    Read,
    /// Also start jobs, write to them, signal and forget them.
    Run,
    /// Also see, and end, the jobs of all callers.
    Admin,
}

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

impl RolloutArgs {
    fn is_set(&self) -> bool {
        self.max_parallel.is_some()
            || self.canary > 0
            || self.stop_after_failures.is_some()
            || self.retries > 0
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

/// Options that mean what they mean to ssh, for the host that is named.
#[derive(Clone, Debug, Default, Args)]
pub struct SshArgs {
    /// TCP port.
    #[arg(short, value_name = "PORT")]
    pub port: Option<u16>,
    /// Account.
    #[arg(short, value_name = "USER")]
    pub login: Option<String>,
    /// Private key to try first.
    #[arg(short, value_name = "FILE")]
    pub identity: Vec<String>,
    /// Jump hosts on the way.
    #[arg(short = 'J', value_name = "HOSTS")]
    pub jump: Option<String>,
    /// An option of ssh_config, as KEY=VALUE.
    #[arg(short, value_name = "KEY=VALUE")]
    pub option: Vec<String>,
}

impl SshArgs {
    /// The same as arguments of ssh.
    pub fn to_ssh(&self) -> Vec<String> {
        let one = |name: &str, value: Option<String>| value.map(|value| [name.to_owned(), value]);
        let many = |name: &'static str, values: &[String]| {
            values.iter().map(move |value| [name.to_owned(), value.clone()]).collect::<Vec<_>>()
        };
        let port = one("-p", self.port.map(|port| port.to_string()));
        let pairs = port.into_iter().chain(one("-l", self.login.clone())).chain(one("-J", self.jump.clone()));
        pairs.chain(many("-i", &self.identity)).chain(many("-o", &self.option)).flatten().collect()
    }
}

/// Reads a time: seconds, or with units.
fn time(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
    let time = seconds.map_or_else(|| humantime::parse_duration(text), Ok);
    let time = time.map_err(|_| "use seconds, as 90 or 1.5, or units, as 90s or 1m30s".to_owned())?;
    let (least, most) = (Duration::from_millis(1), Duration::from_secs(365 * 24 * 3600));
    if (least..=most).contains(&time) { Ok(time) } else { Err("use 1ms to 365days".to_owned()) }
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
    #[arg(add = ArgValueCandidates::new(candidates::hosts))]
    pub host: String,
    /// Don't ask: the key must be the one with this SHA-256 fingerprint.
    #[arg(long, value_name = "SHA256:…")]
    pub fingerprint: Option<String>,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
}

/// Arguments of `ping`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 all can be reached; 255 some can't.

Examples:
  sshjobs ping web1
  sshjobs ping tag:web,db1
  sshjobs ping '*' --json | jq -r 'select(.connected | not) | .name'")]
pub struct PingArgs {
    /// Hosts: names, patterns and tag:NAME over the hosts that `sshjobs hosts` lists, @FILE; separated by commas.
    #[arg(value_name = "HOST[,HOST…]", add = ArgValueCandidates::new(candidates::hosts))]
    pub hosts: String,
    /// Write a line of JSON for each host.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `completions`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  source <(sshjobs completions bash)                                  in ~/.bashrc
  source <(sshjobs completions zsh)                                   in ~/.zshrc
  sshjobs completions fish > ~/.config/fish/completions/sshjobs.fish")]
pub struct CompletionsArgs {
    /// The shell.
    pub shell: CompletedShell,
}

/// A shell that can complete our words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CompletedShell {
    /// GNU bash.
    Bash,
    /// zsh.
    Zsh,
    /// fish.
    Fish,
}

/// Arguments of `man`.
#[derive(Debug, Args)]
#[command(after_help = "Example:\n  sshjobs man ~/.local/share/man/man1 && man sshjobs-run")]
pub struct ManArgs {
    /// Directory; it is made if it is missing.
    pub directory: PathBuf,
}

/// Arguments of `help`.
#[derive(Debug, Args)]
pub struct HelpArgs {
    /// exit-codes, waiting, durable, fleets, trust; or a verb.
    pub topic: Option<String>,
}

/// Arguments of `hosts`.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sshjobs hosts\n  sshjobs hosts web1        connect, and say what came of it\n  sshjobs hosts --json | jq"
)]
pub struct HostsArgs {
    /// Connect to this host and report what came of it.
    #[arg(add = ArgValueCandidates::new(candidates::hosts))]
    pub host: Option<String>,
    /// List only hosts with this tag (`tags` of their [hosts.NAME] table).
    #[arg(long, value_name = "TAG", conflicts_with = "host")]
    pub tag: Option<String>,
    /// Write JSON.
    #[arg(long)]
    pub json: bool,
    /// Options as in ssh.
    #[command(flatten)]
    pub ssh: SshArgs,
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

/// Arguments of `tail`.
#[derive(Debug, Args)]
#[command(after_help = "\
Lines of stderr are red on a terminal. Lines that are gone are counted on stderr.

Examples:
  sshjobs tail web1-7f3k9q2m                     the last ten lines
  sshjobs tail -f web1-7f3k9q2m                  and those to come, to the end of the job
  sshjobs tail --since 1200 web1-7f3k9q2m        those behind line 1200
  sshjobs tail -f --until 'listening on' ID      up to a line that matches
  sshjobs tail --since 0 --json ID | jq .text    all of them, one object a line")]
pub struct TailArgs {
    /// The job, as `spawn` and `jobs` name it.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Go on to the end of the job.
    #[arg(long, short)]
    pub follow: bool,
    /// Begin behind this line; 0 is the beginning.
    #[arg(long, value_name = "LINE", conflicts_with = "lines")]
    pub since: Option<u64>,
    /// Begin with the last so many lines.
    #[arg(long, short = 'n', value_name = "LINES", default_value_t = 10)]
    pub lines: u32,
    /// End with the first line that matches this regex; with -f wait for it.
    #[arg(long, value_name = "REGEX")]
    pub until: Option<String>,
    /// Show only this stream.
    #[arg(long, value_name = "STREAM", default_value = "both")]
    pub stream: StreamChoice,
    /// Put the time (UTC) before each line.
    #[arg(long)]
    pub timestamps: bool,
    /// Write a line of JSON for each line.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `read`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sshjobs read ID --offset -20                        the last 20 lines
  sshjobs read ID --unit bytes --offset 0 --length 512 --stream stdout")]
pub struct ReadArgs {
    /// The job.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// What offset and length count.
    #[arg(long, value_enum, default_value = "lines")]
    pub unit: UnitChoice,
    /// How much to skip; negative counts from the end.
    #[arg(long, default_value_t = 0, allow_negative_numbers = true)]
    pub offset: i64,
    /// How much to show. Default 1000 lines, or 8000 characters or bytes.
    #[arg(long)]
    pub length: Option<i64>,
    /// Show only this stream.
    #[arg(long, value_name = "STREAM", default_value = "both")]
    pub stream: StreamChoice,
    /// Write the bytes of one stream as they came, all from --offset on: sshjobs read --raw --stream stdout JOB >FILE
    #[arg(long, conflicts_with_all = ["unit", "json"], requires = "stream")]
    pub raw: bool,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// What positions count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum UnitChoice {
    /// Finished lines.
    Lines,
    /// Characters.
    Chars,
    /// Bytes as they came.
    Bytes,
}

impl UnitChoice {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lines => "lines",
            Self::Chars => "characters",
            Self::Bytes => "bytes",
        }
    }
}

/// Arguments of `search`.
#[derive(Debug, Args)]
#[command(after_help = "Exit codes: 0 something matches; 1 nothing does; 2 and 255 as elsewhere.

Examples:
  sshjobs search ID 'error|failed'
  sshjobs search ID -C 5 panic")]
pub struct SearchArgs {
    /// The job.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Regular expression; (?i) ignores case. Lines are matched without colours and other control sequences, and lines longer than
    /// max_line_bytes (64 KiB) in pieces of that length.
    pub pattern: String,
    /// Lines to show around each match, 20 at most.
    #[arg(long, short = 'C', value_name = "LINES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=20))]
    pub context: u32,
    /// Most matches to show.
    #[arg(long, short = 'm', value_name = "MATCHES", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_matches: u32,
    /// Look only at this stream.
    #[arg(long, value_name = "STREAM", default_value = "both")]
    pub stream: StreamChoice,
    /// Write a line of JSON for each match.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `write`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sshjobs write ID yes                    the text and a newline
  sshjobs write ID --close < input        all of our stdin, then its end")]
pub struct WriteArgs {
    /// The job.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Text to write, and a newline behind it. Without it, our stdin is written.
    pub text: Option<String>,
    /// Write no newline behind the text.
    #[arg(long)]
    pub no_newline: bool,
    /// Then end its stdin.
    #[arg(long)]
    pub close: bool,
    /// Time for which the command may take to read it.
    #[arg(long, value_name = "TIME", value_parser = time, default_value = "10s")]
    pub patience: Duration,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `signal`.
#[derive(Debug, Args)]
#[command(after_help = "\
The signal goes to every process of the job, over a connection of its own, and what came of it is verified on the host.

Examples:
  sshjobs signal ID                   TERM
  sshjobs signal ID INT
  sshjobs signal ID --grace 5s        TERM, and KILL to what still lives after five seconds")]
pub struct SignalArgs {
    /// The job.
    #[arg(add = ArgValueCandidates::new(candidates::jobs))]
    pub job: String,
    /// Name or number.
    #[arg(default_value = "TERM")]
    pub signal: String,
    /// What still lives after this time gets KILL.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub grace: Option<Duration>,
    /// Write a line of JSON.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `wait`.
#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: of one job, its own as `run` has it. Of several, 0 when all have exited with 0, else the first other one.
124 when --timeout is over first; the jobs go on.

Example:
  sshjobs wait $(sshjobs spawn web1 -- make test) && echo passed")]
pub struct WaitArgs {
    /// The jobs.
    #[arg(required = true)]
    pub jobs: Vec<String>,
    /// Wait for the end of any, not of all.
    #[arg(long)]
    pub any: bool,
    /// Wait for so long at most.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub timeout: Option<Duration>,
    /// Write a line of JSON for each job.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `jobs`.
#[derive(Debug, Args)]
#[command(after_help = "\
A durable job that no process follows is shown as it was last seen; tail, read, search and wait ask its host.

Examples:
  sshjobs jobs --state running
  sshjobs jobs --host web1 --json | jq -r .job_id")]
pub struct JobsArgs {
    /// On this host.
    #[arg(long)]
    pub host: Option<String>,
    /// With this label.
    #[arg(long)]
    pub label: Option<String>,
    /// The hosts of this fleet.
    #[arg(long, value_name = "ID", conflicts_with_all = ["host", "label", "state"])]
    pub fleet: Option<String>,
    /// In this state: starting, running, exited, signaled, lost, closed, refused, timed_out.
    #[arg(long)]
    pub state: Option<String>,
    /// The newest so many.
    #[arg(long, short = 'n', default_value_t = 30, value_parser = clap::value_parser!(u32).range(1..))]
    pub limit: u32,
    /// Write a line of JSON for each job.
    #[arg(long)]
    pub json: bool,
}

/// Arguments of `forget`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  sshjobs forget ID
  sshjobs jobs --state exited -n 1000 --json | jq -r .job_id | xargs sshjobs forget")]
pub struct ForgetArgs {
    /// The jobs.
    #[arg(required = true)]
    pub jobs: Vec<String>,
    /// Kill what still runs first.
    #[arg(long)]
    pub force: bool,
    /// Give up only the output.
    #[arg(long)]
    pub output: bool,
    /// Write a line of JSON for each job.
    #[arg(long)]
    pub json: bool,
}
