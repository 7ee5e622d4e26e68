//! Floor 6: the face for people and CI, and the only home of clap.
//!
//! [`Cli`] is the command line; [`run()`], [`demo()`], [`hosts()`] and [`trust()`] are its verbs. Results go to stdout, everything else to
//! stderr, and remote bytes reach a terminal only through a filter. `serve` is the other face's business.

mod args;
mod demo;
mod exit;
mod hosts;
mod keyboard;
mod run;
mod screen;
mod signals;
mod stdin;
mod trust;
mod tty_prompter;

pub use args::{
    Cli, DemoArgs, HostsArgs, LogLevel, RunArgs, ServeArgs, SshArgs, StreamChoice, TrustArgs, Verb, parse,
};
pub use demo::demo;
pub use exit::{Exit, note, report};
pub use hosts::hosts;
pub use run::run;
pub use trust::trust;
pub use tty_prompter::TerminalPrompter;
