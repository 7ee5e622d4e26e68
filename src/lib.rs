//! Runs commands on remote hosts over SSH as jobs, and lets any number of readers follow their output by cursor.

pub mod job;
pub mod output;
pub mod ssh;
pub mod runner;
pub mod api;
