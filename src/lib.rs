//! Runs commands on remote hosts over SSH as **jobs**, and lets any number of readers follow their output by cursor, without
//! ever losing or repeating a line.
//!
//! # A first job
//!
//! [`Jobs`](jobs::Jobs) knows the hosts of ssh_config, shares connections and keeps what jobs print. A command is built step by
//! step and started; its [`Job`](jobs::Job) is a handle that any number of tasks may hold:
//!
//! ```
//! use sshjobs::jobs::Demo;
//!
//! # #[tokio::main]
//! # async fn main() -> Result<(), sshjobs::jobs::Error> {
//! // `Demo` is an SSH server inside this process. `Jobs::new(Config::default(), Access::Any)` takes your hosts instead.
//! let demo = Demo::start().await?;
//! let job = demo.jobs.command(Demo::HOST, "echo one; echo two >&2; exit 3").cwd("/tmp").spawn().await?;
//!
//! let mut lines = job.lines();
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
//! # What a reader may lean on
//!
//! - One counter numbers a job's lines 1, 2, 3 …, stdout and stderr together. A number never changes or returns.
//! - Reading changes nothing: the same read gives the same answer, and readers don't disturb each other. A
//!   [cursor](jobs::LineNo) is the number of the last line read, and all that a reader has to keep.
//! - A job never waits for its readers. It keeps its newest output within bounds, and what was evicted before it was read is told
//!   as an exact count ([`Lagged`](jobs::Lagged)).
//! - The end of a job is said once, after everything it printed, and kinds of ends are never reported as one another
//!   ([`Outcome`](jobs::Outcome)): exited, signaled, lost with its connection, closed, refused, not started, timed out.
//! - Every call ends: waits have a limit or can be dropped, and dropping a future ends the wait, never the job.
//! - A host is trusted when known_hosts lists its key, as with ssh, and not otherwise.
//!
//! # Where to go on
//!
//! [`jobs`] is the library. [`wire`] is the same as a contract in JSON, which agents and scripts read; the program's two faces,
//! [`mcp`] and [`cli`], stand on it. The features `cli` and `mcp` (both default) bring these; without them the library builds
//! without clap and rmcp. CONTRIBUTING.md draws the folders, which are floors: imports point down only.

#[doc(hidden)]
pub mod hosts;
#[doc(hidden)]
pub mod job;
pub mod jobs;
mod lock;
mod nearest;
#[doc(hidden)]
pub mod output;
#[doc(hidden)]
pub mod runner;
#[doc(hidden)]
pub mod ssh;

#[cfg(feature = "wire")]
pub mod wire;

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(all(feature = "cli", feature = "mcp"))]
pub mod program;
