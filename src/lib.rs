//! Runs commands on remote hosts over SSH as **jobs**, and lets any number of readers follow their
//! output by cursor. No line is ever repeated or lost silently: lines evicted before they were read
//! are reported as an exact count.
//!
//! # A first job
//!
//! [`Jobs`](jobs::Jobs) knows the hosts of ssh_config, shares connections and keeps the output of
//! jobs. A command is built step by step and started. Its [`Job`](jobs::Job) is a handle that any
//! number of tasks may hold:
//!
//! ```
//! use sshjobs::jobs::Demo;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), sshjobs::jobs::Error> {
//! // `Demo` is an SSH server inside this process. `Jobs::builder().start().await?` uses your ssh_config.
//! let demo = Demo::start().await?;
//! let job = demo.jobs.command(Demo::HOST, "echo one; echo two >&2; exit 3").cwd("/tmp").spawn().await?;
//!
//! let mut lines = job.lines().await?;
//! while let Some(line) = lines.next().await {
//!     let line = line.expect("nothing was evicted");
//!     println!("{} {:?}: {}", line.line_no.value(), line.stream, line.text);
//! }
//!
//! let outcome = job.wait().await;
//! assert_eq!(outcome.exit_status(), Some(3));
//! demo.jobs.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! - One counter numbers a job's lines 1, 2, 3 …, stdout and stderr together. A number never changes and is never reused.
//! - Reading changes nothing: the same read gives the same answer until lines are evicted, and readers don't disturb each other.
//!   A [cursor](jobs::LineNo) is the number of the last line read, and all that a reader has to keep.
//!   ([`ReadableJob::tail_as`](jobs::ReadableJob::tail_as) keeps and moves a named one.)
//! - A job never waits for its readers, except one started with [`Command::follow`](jobs::Command::follow). It keeps its newest
//!   output within limits, and lines evicted before they were read are reported as an exact count ([`Lagged`](jobs::Lagged)).
//! - A job's end is reported once, after all of its recorded output, and each kind of end is distinct
//!   ([`Outcome`](jobs::Outcome)): exited, signaled, lost with its connection, closed, refused, not started, timed out.
//! - Every wait has a time limit or can be cancelled. Dropping a future never stops a job that has started; dropping
//!   [`spawn`](jobs::Command::spawn) before the command is sent starts nothing.
//! - A host is trusted only if known_hosts lists its key or certificate. A new key is added only by
//!   [`Jobs::trust`](jobs::Jobs::trust), or under `StrictHostKeyChecking accept-new`.
//!
//! # Further reading
//!
//! [`jobs`] is the library. The program `sshjobs` stands on the same crates, which promise nothing
//! to others; docs/architecture.md shows them. Its feature is `program`, a default: leave it out to
//! build the library without clap, axum and rmcp.

pub use sshjobs_core::jobs;
pub use sshjobs_job::quote;

#[cfg(feature = "program")]
pub mod program;
#[cfg(feature = "testing")]
pub mod testing;
