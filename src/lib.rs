//! Runs commands on remote hosts over SSH as **jobs**, and lets any number of readers follow their
//! output by cursor. No line is ever repeated or lost silently: lines evicted before they were read
//! are reported as an exact count.
//!
//! # A first job
//!
//! [`Jobs`] knows the hosts of ssh_config, shares connections and keeps the output of jobs. A
//! [`Command`] is built step by step and started on a [`Host`]. Its [`Job`] is a handle that any number
//! of tasks may hold:
//!
//! ```no_run
//! use sshjobs::{Command, Jobs};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), sshjobs::Error> {
//! let jobs = Jobs::start().await?;
//! let host = jobs.host("web1");
//! let command = Command::new("grep").args(["-r", "TODO"]).current_dir("src").env("LC_ALL", "C");
//! let job = host.spawn(&command).await?;
//!
//! let mut lines = job.lines().await?;
//! while let Some(line) = lines.next().await {
//!     let line = line.expect("nothing was evicted");
//!     println!("{} {:?}: {}", line.line_no.value(), line.stream, line.text);
//! }
//!
//! println!("{}", job.wait().await);
//! jobs.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! For users of tokio's processes and of the crate openssh: [`Host::output`] and [`Host::status`] run a
//! command to its end, and [`Job::stdin`], [`Job::stdout`] and [`Job::stderr`] are [`AsyncWrite`] and
//! [`AsyncRead`]:
//!
//! [`AsyncRead`]: tokio::io::AsyncRead
//! [`AsyncWrite`]: tokio::io::AsyncWrite
#![cfg_attr(feature = "testing", doc = "```")]
#![cfg_attr(not(feature = "testing"), doc = "```ignore")]
//! # use sshjobs::testing::Demo;
//! use sshjobs::{Command, Stdin};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let demo = Demo::start().await?;
//! # let host = demo.host();
//! let job = host.spawn(&Command::new("sort").stdin(Stdin::Open)).await?;
//! let mut stdin = job.stdin();
//! stdin.write_all(b"pear\napple\n").await?;
//! stdin.shutdown().await?;
//!
//! let mut sorted = String::new();
//! job.stdout().await?.read_to_string(&mut sorted).await?;
//! assert_eq!(sorted, "apple\npear\n");
//! # demo.jobs().shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! Unlike theirs: stdin is closed unless the command asks for [`Stdin::Open`], and dropping a
//! [`StdinPipe`] does not close it; dropping a [`Job`] ends nothing.
//!
//! # Guarantees
//!
//! - One counter numbers a job's lines 1, 2, 3 …, stdout and stderr together. A number never changes and is never reused.
//! - Reading changes nothing: the same read gives the same answer until lines are evicted, and readers don't disturb each other.
//!   A cursor is the [number](LineNo) of the last line read, and all that a reader has to keep.
//! - A job never waits for its readers, except one started with [`Host::follow`] or [`Host::output`]. It keeps its newest
//!   output within limits, and lines evicted before they were read are reported as an exact count ([`Lagged`]).
//! - A job's end is reported once, after all of its recorded output, and each kind of end is distinct ([`Outcome`]): exited,
//!   signaled, lost with its connection, closed, refused, not started, timed out.
//! - Every wait has a time limit or can be cancelled. Dropping a future never stops a job that has started; dropping
//!   [`spawn`](Host::spawn) before the command is sent starts nothing.
//! - A host is trusted only if known_hosts lists its key or certificate. A new key is added only by
//!   [`Host::trust`], or under `StrictHostKeyChecking accept-new`.
//! - Words of a [`Command`] are quoted. Only [`Command::shell`] takes a command line.
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `files` | files of a host: `Host::files` |
//! | `sqlite` | a state directory, which outlives the process: `JobsBuilder::state_dir`, and durable jobs |
//! | `policy` | a file of rules that each call is asked about: `JobsBuilder::policy` |
//! | `testing` | hosts for your tests, in the module `testing` |
//! | `program` | the program `sshjobs`, with all of these but `testing`; on by default |
//!
//! A program that uses the library needs none of clap, axum and rmcp: set `default-features = false`.
//! The crates `sshjobs-…` below promise nothing to others; docs/architecture.md shows them.

mod error;
#[cfg(feature = "files")]
mod files;
mod fleet;
mod forward;
mod host;
mod job;
mod jobs;
#[cfg(feature = "program")]
pub mod program;
mod stdio;
#[cfg(feature = "testing")]
pub mod testing;

pub use error::Error;
#[cfg(feature = "files")]
pub use files::{CopiedDir, DirEntry, RemoteFiles};
pub use fleet::{Fleet, FleetLine, FleetLines, Member};
pub use forward::Forward;
pub use host::{Host, HostKey, Output};
pub use job::{Follow, Job, ListedJob, Tail, TailOptions};
pub use jobs::{JobFilter, Jobs, JobsBuilder};
pub use stdio::{OutputPipe, StdinPipe};

#[cfg(feature = "files")]
pub use sshjobs_core::jobs::FileKind;
pub use sshjobs_core::jobs::{
    Access, Answer, Become, BecomeMethod, Command, Endpoint, ErrorKind, Exit, FleetCounts,
    FleetSpec, FleetSummary, FollowedBytes, ForwardSpec, HostSettings, Lagged, Limits, Line,
    LineNo, Lines, LostWhy, MemberGroup, Outcome, Phase, Prompter, Question, SecretSource, Signal,
    SignalReport, Stdin, StopAfter, Stream, Terminal, TerminalSize,
};
