//! Reading the output of a job: pages, lines, bytes and matches.

mod awaits_input;
mod fleet;
mod follow;
mod lines;
mod screen;
mod search;
mod tail;

pub use fleet::{Fleet, FleetLine, FleetLines};
pub use follow::{Follow, Output};
pub use lines::{Lagged, Lines};
pub use screen::ScreenWait;
