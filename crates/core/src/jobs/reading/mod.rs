//! Reading the output of a job: pages, lines, bytes and matches.

mod asking;
mod fleet;
mod follow;
mod lines;
mod readable;
mod screen;
mod search;
mod tail;

pub use fleet::{Fleet, FleetLine, FleetLines};
pub use follow::{Follow, FollowedBytes};
pub use lines::{Lagged, Lines};
pub use readable::ReadableJob;
pub use screen::ScreenWait;
