//! Floor 4: the library, a Rust API for jobs on remote hosts.
//!
//! [`Jobs`] builds a [`Command`], whose [`spawn`](Command::spawn) returns a [`Job`]. The job's
//! output can be read as [`Lines`], a stream, or as raw bytes through [`Follow`]; its end is an
//! [`Outcome`]:
//!
//! ```
//! # use sshjobs::jobs::{Demo, Error};
//! use std::time::Duration;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Error> {
//! # let demo = Demo::start().await?;
//! # let (jobs, host) = (&demo.jobs, Demo::HOST);
//! let job = jobs.command(host, "read name; echo \"hello $name\"").timeout(Duration::from_secs(10)).spawn().await?;
//! job.write(b"world\n", Duration::from_secs(1)).await?;
//! let first = job.lines().next().await.expect("it prints a line").expect("which is kept");
//! assert_eq!(first.text, "hello world");
//! assert!(job.wait().await.is_success());
//! # jobs.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! Any number of readers follow a job, each at its own pace. [`Job::tail`] reads a page after a
//! cursor and waits for a line, a pattern or silence; [`Job::read`] reads a range by position, and
//! [`Job::search`] finds the lines that match a pattern. Dropping a future never stops a job that
//! has started; [`Jobs::shutdown`] ends every caller's jobs and closes all connections.
//!
//! Every verb passes one place (`door.rs`), which finds only jobs that the [`Caller`] may see, and
//! refuses hosts that may not be used and verbs that the caller's [`Rights`] do not allow.

mod command;
mod config;
mod demo;
mod door;
mod error;
mod excluded;
mod fleet;
mod hosts;
mod job;
mod jobs;
mod last_errors;
mod reading;
mod rights;
mod trust;

pub use command::Command;
pub use config::{Config, ConfigFileError, Defaults};
pub use demo::Demo;
pub use error::Error;
pub use fleet::FleetSpec;
pub use hosts::Host;
pub use job::Job;
pub use jobs::{Freshness, Jobs};
pub use reading::{Follow, Lagged, Lines, Output};
pub use rights::{HostPatterns, Rights, Role};
pub use trust::HostKey;

pub use crate::hosts::{Access, HostError, Prompters, Usage};
pub use crate::job::{
    Caller, Exit, FarEndError, Fleet, FleetCounts, FleetPlan, FleetSummary, Found, JobId,
    LoginShell, LostWhy, Member, MemberEnd, MemberGroup, Outcome, Pace, Phase, Piece, PlanError,
    RangeError, ReturnedBecause, Signal, SpecError, Status, StdinPlan as Stdin, StopAfter, Tail,
    Terminal, TooManyCursors, TooSlow, UnknownSignal, Wait, fold, key_bytes, member_of, shown_end,
    unfold, words,
};
pub use crate::nearest::nearest;
pub use crate::output::{
    Content, Excerpt, Keep, LineNo, Match, PageLine as Line, PageQuery, ReadQuery, Reading, Render,
    SearchQuery, Selection, Stream, TerminalFilter, TerminalModes, TerminalSize, Unit, clean,
    printable, render,
};
pub use crate::runner::{
    DeliveredVia, Limits, SignalError, SignalReport, SpawnError, Stats, Summary, Tombstone,
    Unverified, WriteError, chain,
};
pub use crate::store::{Filter, StoreError};

pub use crate::ssh::{
    Answer, Askpass, CertificateFault, ChannelError, ConfigError, ConnectError, HostKeyError,
    HostSettings, Negotiated, Prompter, Question, SecretSource, Setting, Source, TrustError,
    matches as glob_matches,
};
