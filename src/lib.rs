//! Runs commands on remote hosts over SSH as jobs, and lets any number of readers follow their output by cursor.
//!
//! [`jobs`] is the library, and the way in for programs: start there. The program's two faces, an MCP server and a command line,
//! stand on the same contract in JSON, [`wire`], which stands on the library.
//!
//! The folders are floors, and imports point down only; CONTRIBUTING.md draws them.

pub mod hosts;
pub mod job;
pub mod jobs;
mod lock;
mod nearest;
pub mod output;
pub mod runner;
pub mod ssh;

#[cfg(feature = "wire")]
pub mod wire;

#[cfg(feature = "cli")]
pub mod cli;
#[cfg(feature = "mcp")]
pub mod mcp;
#[cfg(all(feature = "cli", feature = "mcp"))]
pub mod program;
