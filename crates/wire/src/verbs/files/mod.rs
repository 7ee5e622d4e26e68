//! Verbs on files of hosts: get and put.

mod copy;
mod file_paths;
mod get;
mod put;

pub use copy::CopiedTree;
pub use get::{FileEntry, FileUnit, GetReply, GetRequest};
pub use put::parse_mode;
pub use put::{EditArg, PutGroup, PutReply, PutRequest};
