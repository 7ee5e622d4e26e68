//! The core of sshjobs: it starts jobs on hosts, records their output, copies files and forwards
//! ports.
//!
//! It promises what docs/reliability.md says of jobs and their output, to the faces and the library,
//! which use its [`jobs`]. The other rooms are below: [`runner`], [`files`] and [`forward`] work on
//! the connections of [`hosts`], for a [`Permit`](admission::Permit) of [`admission`]. `keeping` stores the
//! output of jobs before it is shown.

#![cfg_attr(
    not(feature = "files"),
    allow(dead_code, unused_imports, reason = "permits for files")
)]

pub mod admission;
#[cfg(feature = "files")]
pub mod files;
pub mod forward;
pub mod hosts;
pub mod jobs;
mod keeping;
pub mod runner;
