//! All tests that need an OpenSSH sshd on this machine and nothing else: one binary, because linking
//! one for each file took longer than compiling them.
#![allow(
    clippy::disallowed_methods,
    clippy::panic,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "tests"
)]

#[path = "support/guide.rs"]
mod guide;
mod support;

mod abandoned;
mod approvals;
mod attach;
mod audit;
mod auth;
mod bad_input;
mod bypass;
mod ci_guide;
mod cli;
mod contract;
mod directories;
mod docs;
mod durable;
mod elsewhere;
mod exports;
mod faults;
mod files;
mod files_cli;
mod files_http;
mod fleets;
mod fleets_cli;
mod floor_plan;
mod forwards;
mod fuzz;
mod host_keys;
mod http;
mod http_attacks;
mod http_fuzz;
mod inspect;
mod jumps;
mod kills;
mod library;
mod login_shells;
mod looks;
mod mcp_install;
mod mcp_stdio;
mod monitoring;
mod notifications;
mod oidc;
mod order;
mod page_http;
mod people;
mod policy;
mod processes;
mod questions;
mod references;
mod results;
mod screens;
mod secrets;
mod seeds;
mod setup;
mod skill;
mod snapshots;
mod spool;
mod store;
mod sync;
mod terminal;
mod top;
mod transcript;
mod upkeep;
mod verbs;
mod waking;
mod written_commands;
