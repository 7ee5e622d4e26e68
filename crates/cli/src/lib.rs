//! The face for people and CI, and the only home of clap.
//!
//! [`Cli`] is the command line, and each verb a function. Results go to stdout, everything else to
//! stderr. Output of hosts reaches a terminal only through a filter. `serve` is implemented by the
//! `mcp` and `http` faces.

mod args;
mod command;
mod exit;
mod fleet;
mod interrupt;
mod json;
mod terminal;
mod top;
mod verbs;
mod version;

pub use args::{
    AddHostArgs, ApprovalsArgs, ApproveArgs, AttachArgs, AuditArgs, AuditCheckpointsArgs,
    AuditKeyArgs, AuditPruneArgs, AuditShowArgs, AuditSubcommand, AuditVerifyArgs, AwaitedEvent,
    BecomeArgs, Cli, CliVerb, ClusterArg, ClusterArgs, ClusterStatusArgs, ClusterVerb,
    CompletedShell, CompletionsArgs, ConfigArgs, CopyArgs, DemoArgs, DenyArgs, EachHostArgs,
    EditArgs, ExportArgs, FetchArgs, FilterArgs, FleetArgs, ForgetArgs, ForwardArgs, GetArgs,
    GlobalArgs, HelpArgs, HoldArgs, HostAddress, HostsArgs, HostsVerb, InitArgs, InspectArgs,
    JobsArgs, ListTokensArgs, LogArgs, LogFormat, LogLevel, ManArgs, McpArgs, McpClient,
    McpInstallArgs, McpSubcommand, MoveArgs, NewTokenArgs, PingArgs, PolicyArgs, PolicyCheckArgs,
    PolicyExplainArgs, PolicySubcommand, PolicyTestArgs, PutArgs, QueueArgs, QueueVerb, ReadArgs,
    RerunArgs, RestartArgs, RoleChoice, RolloutArgs, RunArgs, ScreenArgs, SearchArgs, SecretArgs,
    ServeArgs, SignalArgs, SignalTarget, Since, SortBy, SpawnArgs, SshArgs, StartArgs, StoreArgs,
    StoreBackupArgs, StoreCheckArgs, StoreCopyArgs, StoreRepairArgs, StoreRestoreArgs, StoreVerb,
    StreamChoice, SyncArgs, TailArgs, TemplateArgs, TokenArgs, TokenVerb, ToolChoice, TopArgs,
    TreeArgs, TrustArgs, TurnArgs, UnitChoice, WaitArgs, WatchArgs, WhenColours, WriteArgs,
    WritingArgs, parse,
};
pub use exit::{ProgramExit, be_quiet, note, report};
pub use terminal::{ServerSignals, TerminalPrompter, survive_file_size_limit};
pub use top::top;
pub use verbs::{
    Override, Overrides, add_host, answer_shell, approvals, approve, attach, audit, cluster_status,
    completions, config, demo, deny, edit, export, fetch, forget, forward, get, help, hosts, init,
    inspect, jobs, log, man, mcp, note_parent, ping, policy, print_help, put, queue, read, rerun,
    run, screen, search, signal, spawn, store_backup, store_check, store_copy, store_repair,
    store_restore, sync, tail, token, trust, wait, watch, write,
};
pub use version::answer_version;
