//! Runs commands on remote hosts over SSH as jobs, and lets any number of readers follow their output by cursor.
//!
//! [`api::Service`] is the way in: it starts jobs, follows them, ends them. The program's two faces, an MCP server
//! ([`mcp`]) and a command line ([`cli`]), are built on it and on nothing else.
//!
//! ```no_run
//! # async fn example() -> Result<(), sshjobs::api::Error> {
//! use sshjobs::api::{Access, Config, Service, SpawnRequest, TailRequest};
//!
//! let service = Service::new(Config::default(), Access::Any);
//! let job = service.spawn(SpawnRequest::new("web1", "make test")).await?;
//! let mut cursor = 0;
//! loop {
//!     let reply = service.tail(TailRequest::new(&job.job_id, cursor, 5000)).await?;
//!     for line in reply.lines.iter().flatten() {
//!         // show it
//!         # drop(line);
//!     }
//!     cursor = reply.last_line_no;
//!     if !reply.still_running {
//!         break;
//!     }
//! }
//! service.shutdown().await;
//! # Ok(())
//! # }
//! ```
//!
//! The folders are floors, and imports point down only: `mcp` and `cli` (4) see [`api`] (3), which sees [`runner`] (2),
//! where [`job`] and [`ssh`] (1) meet; [`output`] (0) is pure.

pub mod api;
pub mod cli;
pub mod job;
pub mod mcp;
pub mod output;
pub mod runner;
pub mod ssh;
