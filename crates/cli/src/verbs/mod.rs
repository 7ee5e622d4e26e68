//! One file for each verb of the command line.

mod approvals;
mod audit;
mod cluster;
mod completions;
mod config;
mod demo;
mod files;
mod forward;
mod help;
mod hosts;
mod jobs;
mod keeper;
mod man;
mod mcp;
mod policy;
mod rerun;
mod run;
mod spawn;
mod store;
mod token;
mod tree;

pub(crate) use approvals::{approval_in_words, once_approved};
pub use approvals::{approvals, approve, deny};
pub use audit::audit;
pub use cluster::{cluster_status, store_copy};
pub use completions::{answer_shell, completions};
pub use config::{Override, Overrides, add_host, config, init};
pub use demo::demo;
pub(crate) use files::fetch_here;
pub use files::{edit, fetch, get, put, sync};
pub use forward::forward;
pub use help::{help, print_help};
pub use hosts::{hosts, ping, trust};
pub(crate) use jobs::{
    age, attach_to, command_of, detail_in_words, duration_of, page_log, resolve_turn, state_of,
};
pub use jobs::{
    attach, export, forget, inspect, jobs, log, queue, read, screen, search, signal, tail, wait,
    watch, write,
};
pub use keeper::note_parent;
pub use man::man;
pub use mcp::mcp;
pub use policy::policy;
pub use rerun::rerun;
pub use run::run;
pub use spawn::spawn;
pub use store::{store_backup, store_check, store_repair, store_restore};
pub use token::token;
