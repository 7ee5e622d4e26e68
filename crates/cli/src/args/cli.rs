//! The top of the command line: global options and the list of verbs.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use tracing_subscriber::filter::{LevelFilter, Targets};

use super::approvals::{ApprovalsArgs, ApproveArgs, DenyArgs};
use super::audit::AuditArgs;
use super::cluster::{ClusterArgs, StoreArgs};
use super::files::{EditArgs, FetchArgs, GetArgs, PutArgs, SyncArgs};
use super::forward::ForwardArgs;
use super::hosts::{HostsArgs, HostsVerb, PingArgs, TrustArgs};
use super::jobs::{
    AttachArgs, ExportArgs, ForgetArgs, InspectArgs, JobsArgs, LogArgs, ReadArgs, ScreenArgs,
    SearchArgs, SignalArgs, TailArgs, TopArgs, WriteArgs,
};
use super::mcp::McpArgs;
use super::policy::PolicyArgs;
use super::program::{CompletionsArgs, ConfigArgs, DemoArgs, HelpArgs, InitArgs, ManArgs};
use super::queue::QueueArgs;
use super::run::{RerunArgs, RunArgs, SpawnArgs};
use super::serve::ServeArgs;
use super::token::TokenArgs;
use super::values::{CONFIG_VARIABLE, GLOBAL, STATE_DIR_VARIABLE, SshArgs};
use super::waiting::{WaitArgs, WatchArgs};
use sshjobs_wire::remote::ServerAddress;

/// Run commands on remote hosts over SSH as jobs, and follow their output by cursor.
#[derive(Debug, Parser)]
#[command(
    name = "sshjobs",
    version,
    max_term_width = 100,
    arg_required_else_help = true,
    disable_help_subcommand = true,
    after_help = "\
Examples:
  sshjobs demo                          see it work without any setup
  sshjobs run web1 -- make test         run a command, with its output and exit code
  sshjobs trust web1                    show a new host's key, and accept it
  sshjobs spawn web1 -- make test       start a job in the background and print its id
  sshjobs jobs                          list jobs: yours, and those of your agents
  sshjobs tail -f ID                    follow a job
  sshjobs hosts                         list the hosts of ssh_config and of the configuration
  sshjobs run 'web*' -- uptime          run it on many hosts
  sshjobs put app.conf web1:/etc/app/   copy a file to a host; get copies from one
  sshjobs serve                         serve MCP on stdin and stdout, for an agent
  sshjobs help exit-codes               explain a topic: exit-codes, waiting, durable, fleets, ...

Hosts, users, ports and keys come from ssh_config; host keys must be in known_hosts. The file
~/.config/sshjobs/config.toml need not exist; `sshjobs init` writes one, and `sshjobs config` shows
the effective values."
)]
pub struct Cli {
    /// Options of all verbs.
    #[command(flatten)]
    pub global: GlobalArgs,
    /// The subcommand.
    #[command(subcommand)]
    pub verb: CliVerb,
    /// Name of the subcommand.
    #[arg(skip)]
    pub verb_name: String,
}

/// Options of all verbs.
#[derive(Debug, Args)]
pub struct GlobalArgs {
    /// Configuration file (TOML).
    #[arg(
        long,
        global = true,
        help_heading = GLOBAL,
        value_name = "FILE",
        env = CONFIG_VARIABLE,
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
    /// Policy file: who may do what.
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE")]
    pub policy: Option<PathBuf>,
    /// ssh_config file in place of the usual ones.
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE")]
    pub ssh_config: Option<PathBuf>,
    /// Where jobs are stored.
    #[arg(
        long,
        global = true,
        help_heading = GLOBAL,
        value_name = "DIR",
        env = STATE_DIR_VARIABLE,
        hide_env_values = true
    )]
    pub state_dir: Option<PathBuf>,
    /// Use a running server and its jobs.
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "URL|SOCKET", env = "SSHJOBS_SERVER", hide_env_values = true)]
    pub server: Option<ServerAddress>,
    /// File with the server's token. Default: $SSHJOBS_TOKEN.
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "FILE", requires = "server")]
    pub token_file: Option<PathBuf>,
    /// When to use colours.
    #[arg(long, global = true, help_heading = GLOBAL, value_name = "WHEN", default_value = "auto")]
    pub color: WhenColours,
    /// What to log to stderr.
    #[arg(
        long,
        global = true,
        help_heading = GLOBAL,
        value_name = "LEVEL",
        default_value = "warn",
        env = "SSHJOBS_LOG",
        hide_env_values = true
    )]
    pub log: LogLevel,
}

/// When output is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhenColours {
    /// On terminals, subject to the environment.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// How much is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Nothing.
    Off,
    /// Errors.
    Error,
    /// Warnings.
    Warn,
    /// Connections and jobs.
    Info,
    /// Decisions.
    Debug,
    /// Everything.
    Trace,
}

impl LogLevel {
    /// The level as a filter for tracing. It applies to our own modules only: libraries warn of
    /// every malformed message from a host or client, and log whole messages, which contain
    /// secrets, below that level.
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

/// The subcommands.
#[derive(Debug, Subcommand)]
pub enum CliVerb {
    /// Run a real job on an SSH server inside this process, and follow its output by cursor.
    Demo(DemoArgs),
    /// Serve MCP on stdin and stdout, or MCP and a JSON API over HTTP.
    Serve(ServeArgs),
    /// Add sshjobs to the configuration of a client for agents.
    Mcp(McpArgs),
    /// Create, list and revoke the tokens of a server's callers.
    Token(TokenArgs),
    /// Check, explain and test the policy: who may do what on which hosts.
    Policy(PolicyArgs),
    /// List calls that wait for an approval.
    Approvals(ApprovalsArgs),
    /// Agree to a call that waits for an approval.
    Approve(ApproveArgs),
    /// Refuse a call that waits for an approval.
    Deny(DenyArgs),
    /// Show the audit log: who was allowed to do what. Find changes of it.
    Audit(AuditArgs),
    /// Show the replicas, hosts and NATS of a cluster.
    Cluster(ClusterArgs),
    /// Check, repair, back up or restore the state directory, or copy it to a cluster.
    Store(StoreArgs),
    /// Run a command on one host or many, with its output, stdin and exit code, like ssh.
    #[command(visible_alias = "exec")]
    Run(RunArgs),
    /// Start a job in the background and print its id.
    Spawn(SpawnArgs),
    /// Start the command of an earlier job again.
    Rerun(RerunArgs),
    /// Show a job's output; -f follows it.
    Tail(TailArgs),
    /// Show the whole output of jobs, in a pager; -f follows it.
    #[command(visible_alias = "logs")]
    Log(LogArgs),
    /// Show a part of a job's output, by position.
    Read(ReadArgs),
    /// Write a job's output as a recording for asciinema, as text or as JSON lines.
    Export(ExportArgs),
    /// Show the screen of a job's terminal; -f follows it.
    Screen(ScreenArgs),
    /// Show why a job is silent or why it ended.
    Inspect(InspectArgs),
    /// Attach this terminal to a job that runs on one.
    Attach(AttachArgs),
    /// Search a job's output for a pattern.
    Search(SearchArgs),
    /// Write to a job's stdin.
    Write(WriteArgs),
    /// Send a signal to all processes of jobs.
    #[command(visible_alias = "kill")]
    Signal(SignalArgs),
    /// Wait until jobs have ended.
    Wait(WaitArgs),
    /// Print a line for each event of jobs: an end, a question, a silence, a matching line.
    Watch(WatchArgs),
    /// List jobs of all sshjobs processes of this user.
    #[command(visible_alias = "ps")]
    Jobs(JobsArgs),
    /// List queues, and hold, release or move the jobs that wait in them.
    Queue(QueueArgs),
    /// Watch jobs and their output on a full screen; search, answer and signal them with keys.
    Top(TopArgs),
    /// Delete jobs that have ended, with their output.
    Forget(ForgetArgs),
    /// Copy files to a host, or to many.
    Put(PutArgs),
    /// Copy files from a host, or from many.
    Get(GetArgs),
    /// Bring a directory of a host, or of many, to the state of one here, or back.
    Sync(SyncArgs),
    /// Copy back the files that a job was started with --fetch for.
    Fetch(FetchArgs),
    /// Edit a file of a host with your editor.
    Edit(EditArgs),
    /// Forward ports and sockets through a host.
    Forward(ForwardArgs),
    /// List the hosts that jobs can run on, or test one.
    Hosts(HostsArgs),
    /// Connect to hosts and report time, server and login shell of each.
    Ping(PingArgs),
    /// Show a host's key and, if you confirm it, add it to known_hosts.
    Trust(TrustArgs),
    /// Write a configuration to begin with, and choose hosts for it.
    Init(InitArgs),
    /// Show the effective configuration, and the source of each value.
    Config(ConfigArgs),
    /// Print a shell completion script.
    Completions(CompletionsArgs),
    /// Print a man page, or write all of them to a directory.
    Man(ManArgs),
    /// Explain a topic or a verb.
    Help(HelpArgs),
}

impl CliVerb {
    /// Whether it is only about this machine, so that SSHJOBS_SERVER does not apply. (Of the other verbs put, get, sync, edit, forward
    /// and `hosts add` refuse a server, because it would have to reach this machine's files and ports.)
    pub fn runs_here_only(&self) -> bool {
        matches!(
            self,
            Self::Audit(_)
                | Self::Cluster(_)
                | Self::Config(_)
                | Self::Demo(_)
                | Self::Init(_)
                | Self::Mcp(_)
                | Self::Policy(_)
                | Self::Serve(_)
                | Self::Store(_)
                | Self::Token(_)
                | Self::Trust(_)
        )
    }

    /// Whether it uses files or ports of this machine, which a server elsewhere can't reach.
    pub fn uses_this_machine(&self) -> bool {
        if let Self::Run(RunArgs { start, .. }) | Self::Spawn(SpawnArgs { start, .. }) = self {
            return start.tree.sync.is_some();
        }
        matches!(
            self,
            Self::Put(_)
                | Self::Get(_)
                | Self::Sync(_)
                | Self::Edit(_)
                | Self::Forward(_)
                | Self::Hosts(HostsArgs {
                    verb: Some(HostsVerb::Add(_)),
                    ..
                })
        )
    }

    /// Its options of ssh, if it has them.
    pub fn ssh(&self) -> Option<&SshArgs> {
        if let Self::Run(args) = self {
            Some(&args.ssh)
        } else if let Self::Spawn(args) = self {
            Some(&args.ssh)
        } else if let Self::Rerun(args) = self {
            Some(&args.ssh)
        } else if let Self::Hosts(args) = self {
            Some(&args.ssh)
        } else if let Self::Put(args) = self {
            Some(&args.ssh)
        } else if let Self::Get(args) = self {
            Some(&args.ssh)
        } else if let Self::Sync(args) = self {
            Some(&args.ssh)
        } else if let Self::Fetch(args) = self {
            Some(&args.ssh)
        } else if let Self::Edit(args) = self {
            Some(&args.ssh)
        } else if let Self::Forward(args) = self {
            Some(&args.ssh)
        } else if let Self::Trust(args) = self {
            Some(&args.ssh)
        } else {
            None
        }
    }
}
