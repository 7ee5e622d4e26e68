//! The verb search, in the output of a job and in files of a host.

mod search;
mod search_files;
mod search_output;

pub use search::{MatchEntry, SearchReply, SearchRequest};
