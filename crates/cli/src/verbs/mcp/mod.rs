//! `sshjobs mcp install`: an entry for sshjobs in the configuration of a client for agents.
//!
//! Each kind of file is changed as a text, so that comments and the order of other entries stay.

mod client_file;
mod entry;
mod install;
mod json_file;
mod toml_file;
mod yaml_file;

pub use install::mcp;
