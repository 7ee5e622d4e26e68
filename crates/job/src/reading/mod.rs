//! Reads of a job: by cursor, by position and by pattern.

mod alternatives;
mod follow;
mod matching;
mod output_reader;
mod read;
mod tail;

pub use follow::{JobBytes, Positions, StreamPiece};
pub use matching::{Matching, TooSlow};
pub use read::SearchResult;
pub use tail::LONGEST_PATIENCE;
pub use tail::{PARTIAL_SHOWN, ReturnedBecause, SilenceFrom, Tail, Wait, shown_end};
