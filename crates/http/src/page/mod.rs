//! The live page: its static files, and the login that its requests use.

mod files;
mod login;
mod oidc_login;

pub(super) use files::{index, static_file};
pub(super) use login::{log_in, log_out, logged_in_caller};
pub(super) use oidc_login::{begin, finish, issuers};
