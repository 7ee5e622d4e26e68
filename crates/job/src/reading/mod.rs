//! Reads of a job: by cursor, by position and by pattern.

mod follow;
mod matching;
mod output_reader;
mod read;
mod tail;

pub use follow::{Chunk, Piece, Positions};
pub use matching::{Matching, TooSlow};
pub use read::Found;
pub use tail::LONGEST_PATIENCE;
pub use tail::{PARTIAL_SHOWN, ReturnedBecause, SilenceFrom, Tail, Wait, shown_end};
