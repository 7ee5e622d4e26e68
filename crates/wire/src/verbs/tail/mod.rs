//! The verb tail, for one job and for several.

mod tail;
mod tail_many;
mod tail_reply;

pub use tail::TailRequest;
pub(super) use tail::{KnownOutput, LEAST_QUIET_MS, MOST_BYTES, MOST_LINES, optional_regex, regex};
pub use tail_reply::{Because, JobTail, LineRecord, Partial, StreamName, TailReply};
