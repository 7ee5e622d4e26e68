//! The command line: arguments of each verb and their help texts. docs/cli.md is generated from it.

mod approvals;
mod audit;
mod candidates;
mod cli;
mod cluster;
#[cfg(test)]
mod documented;
mod files;
mod filter;
mod forward;
mod help;
mod hosts;
mod jobs;
mod mcp;
mod parse;
mod policy;
mod program;
mod queue;
mod quick;
mod run;
mod serve;
mod token;
mod values;
mod waiting;

pub(super) use help::{command_line, long_version, wrapped};

pub use approvals::{ApprovalsArgs, ApproveArgs, DenyArgs};
pub use audit::{
    AuditArgs, AuditCheckpointsArgs, AuditKeyArgs, AuditPruneArgs, AuditShowArgs, AuditSubcommand,
    AuditVerifyArgs,
};
pub use cli::{Cli, CliVerb, GlobalArgs, LogLevel, WhenColours};
pub use cluster::{
    ClusterArgs, ClusterStatusArgs, ClusterVerb, StoreArgs, StoreBackupArgs, StoreCheckArgs,
    StoreCopyArgs, StoreRepairArgs, StoreRestoreArgs, StoreVerb,
};
pub use files::{CopyArgs, EachHostArgs, EditArgs, FetchArgs, GetArgs, PutArgs, SyncArgs};
pub use filter::FilterArgs;
pub use forward::ForwardArgs;
pub use hosts::{AddHostArgs, HostAddress, HostsArgs, HostsVerb, PingArgs, TrustArgs};
pub use jobs::{
    AttachArgs, ExportArgs, ForgetArgs, InspectArgs, JobsArgs, LogArgs, ReadArgs, ScreenArgs,
    SearchArgs, SignalArgs, SignalTarget, SortBy, TailArgs, TopArgs, UnitChoice, WriteArgs,
};
pub use mcp::{McpArgs, McpClient, McpInstallArgs, McpSubcommand};
pub use parse::parse;
pub use policy::{
    PolicyArgs, PolicyCheckArgs, PolicyExplainArgs, PolicySubcommand, PolicyTestArgs,
};
pub(super) use program::TOPICS;
pub use program::{
    CompletedShell, CompletionsArgs, ConfigArgs, DemoArgs, HelpArgs, InitArgs, ManArgs,
};
pub use queue::{HoldArgs, MoveArgs, QueueArgs, QueueVerb};
pub use run::{
    FleetArgs, RerunArgs, RestartArgs, RolloutArgs, RunArgs, SecretArgs, SpawnArgs, StartArgs,
    TemplateArgs, TreeArgs, TurnArgs, WritingArgs,
};
pub use serve::{ServeArgs, ToolChoice};
pub use token::{ListTokensArgs, NewTokenArgs, RoleChoice, TokenArgs, TokenVerb};
pub use values::{BecomeArgs, ClusterArg, LogFormat, Since, SshArgs, StreamChoice};
pub use waiting::{AwaitedEvent, WaitArgs, WatchArgs};
