//! Floor 7: the face for people and CI, and the only home of clap.
//!
//! [`Cli`] is the command line, and each verb a function. Results go to stdout, everything else to stderr, and remote bytes reach a terminal only through a filter. `serve` is the other face's business.

mod args;
mod candidates;
mod colours;
mod columns;
mod command;
mod complete;
mod demo;
mod exit;
mod fleet;
mod help;
mod hosts;
mod job_verbs;
mod jobs;
mod keyboard;
mod man;
mod ping;
mod run;
mod screen;
mod signals;
mod spawn;
mod stdin;
mod tail;
mod token;
mod top;
mod trust;
mod tty_prompter;

pub use args::{
    Cli, CompletedShell, CompletionsArgs, DemoArgs, FleetArgs, ForgetArgs, HelpArgs, HostsArgs, JobsArgs,
    ListTokensArgs, LogLevel, ManArgs, NewTokenArgs, PingArgs, ReadArgs, RoleChoice, RolloutArgs, RunArgs,
    SearchArgs, ServeArgs, SignalArgs, Since, SpawnArgs, SshArgs, StreamChoice, TailArgs, TokenArgs,
    TokenVerb, TopArgs, TrustArgs, UnitChoice, Verb, WaitArgs, WhenColours, WriteArgs, parse,
};
pub use complete::{answer_shell, completions};
pub use demo::demo;
pub use exit::{Exit, note, report};
pub use help::help;
pub use hosts::hosts;
pub use job_verbs::{forget, read, search, signal, wait, write};
pub use jobs::jobs;
pub use man::man;
pub use ping::ping;
pub use run::run;
pub use signals::told_to_stop;
pub use spawn::spawn;
pub use tail::tail;
pub use token::token;
pub use top::top;
pub use trust::trust;
pub use tty_prompter::TerminalPrompter;
