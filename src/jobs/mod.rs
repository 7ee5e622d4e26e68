//! Floor 5: the library. Jobs on remote hosts, as a program in Rust handles them.
//!
//! [`Jobs`] starts a [`Command`] and gives a [`Job`], whose output comes as [`Lines`], whose end is an [`Outcome`]:
//!
//! ```
//! use sshjobs::jobs::{Demo, Error};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Error> {
//! // An SSH server inside this process; `Jobs::new` takes the hosts of ssh_config instead.
//! let demo = Demo::start().await?;
//! let job = demo.jobs.command(Demo::HOST, "echo one; echo two >&2; exit 3").spawn().await?;
//! let mut lines = job.lines();
//! while let Some(line) = lines.next().await {
//!     let line = line.expect("nothing was evicted");
//!     println!("{:?} {}: {}", line.stream, line.line_no.value(), line.text);
//! }
//! let outcome = job.wait().await;
//! assert_eq!(outcome.exit_status(), Some(3));
//! demo.jobs.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! Any number of readers follow a job, each at its own pace: reading changes nothing. What was evicted before it was read is
//! counted, never passed over in silence. Dropping a future ends the wait, never the job; [`Jobs::shutdown`] ends the jobs.
//!
//! Every verb goes through one door, where it is decided what a [`Caller`] may do.

mod awaits_input;
mod command;
mod config;
mod demo;
mod door;
mod error;
mod follow;
mod hosts;
mod job;
mod jobs;
mod last_errors;
mod lines;
mod search;
mod tail;
mod trust;

pub use command::Command;
pub use config::{Config, ConfigFileError, Defaults};
pub use demo::Demo;
pub use error::Error;
pub use follow::{Follow, Output};
pub use hosts::Host;
pub use job::Job;
pub use jobs::Jobs;
pub use lines::{Lagged, Lines};
pub use search::Found;
pub use trust::HostKey;

pub use crate::hosts::{Access, HostError, Usage};
pub use crate::job::{
    Caller, Exit, FarEndError, JobId, LoginShell, Outcome, Pace, Phase, PlanError, ReturnedBecause, Signal,
    SpecError, Status, StdinPlan as Stdin, Tail, Terminal, TooManyCursors, TooSlow, UnknownSignal, Wait,
    key_bytes, shown_end,
};
pub use crate::nearest::nearest;
pub use crate::output::{
    Content, Excerpt, Keep, LineNo, Match, PageLine as Line, PageQuery, ReadQuery, Reading, Render,
    SearchQuery, Selection, Stream, TerminalFilter, Unit, clean, printable, render,
};
pub use crate::runner::{
    DeliveredVia, Limits, SignalError, SignalReport, SpawnError, Tombstone, Unverified, WriteError, chain,
};
pub use crate::ssh::{
    Answer, Askpass, CertificateFault, ChannelError, ConfigError, ConnectError, HostKeyError, HostSettings,
    Negotiated, Prompter, Question, SecretSource, Setting, Source, TrustError,
};
