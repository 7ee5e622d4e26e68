//! The command line: arguments of each verb and their help texts. docs/cli.md is generated from it.

mod candidates;
mod cli;
mod filter;
mod hosts;
mod jobs;
mod program;
mod run;
mod serve;
mod token;
mod values;

pub use cli::{Cli, LogLevel, Verb, WhenColours, parse};
pub use filter::FilterArgs;
pub use hosts::{HostsArgs, PingArgs, TrustArgs};
pub use jobs::{
    AttachArgs, ForgetArgs, JobsArgs, LogArgs, ReadArgs, ScreenArgs, SearchArgs, SignalArgs,
    SignalTarget, SortBy, TailArgs, TopArgs, UnitChoice, WaitArgs, WriteArgs,
};
pub(super) use program::TOPICS;
pub use program::{CompletedShell, CompletionsArgs, DemoArgs, HelpArgs, ManArgs};
pub use run::{FleetArgs, RolloutArgs, RunArgs, SpawnArgs};
pub use serve::ServeArgs;
pub use token::{ListTokensArgs, NewTokenArgs, RoleChoice, TokenArgs, TokenVerb};
pub use values::{Since, SshArgs, StreamChoice};
