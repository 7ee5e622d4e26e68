//! The live page: its static files, and the login that its requests use.

mod files;
mod login;

pub(super) use files::{index, static_file};
pub(super) use login::{log_in, log_out, who};
