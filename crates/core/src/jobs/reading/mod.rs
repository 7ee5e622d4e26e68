//! Reading the output of a job: pages, lines, bytes and matches.

mod asking;
mod follow;
mod lines;
mod readable;
mod screen;
mod search;
mod tail;

pub use follow::{Follow, FollowedBytes};
pub use lines::{Lagged, Lines};
pub use readable::ReadableJob;
pub use screen::ScreenWait;
