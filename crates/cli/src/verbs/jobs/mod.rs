//! Verbs on existing jobs.

mod attach;
mod export;
mod finish;
mod forget;
mod inspect;
mod jobs;
mod lines;
mod log;
mod notifications;
mod pick;
mod read;
mod screen;
mod search;
mod signal;
mod tail;
mod wait;
mod write;

pub use attach::attach;
pub(crate) use attach::{attach_to, note_detached};
pub use export::export;
pub(super) use finish::finish;
pub use forget::forget;
pub(crate) use inspect::detail_in_words;
pub use inspect::inspect;
pub use jobs::jobs;
pub(crate) use jobs::{age, duration_of, exit_text, in_largest_unit, state_of};
pub use log::log;
pub(crate) use log::page_log;
pub use read::read;
pub use screen::screen;
pub use search::search;
pub use signal::signal;
pub use tail::tail;
pub use wait::wait;
pub use write::write;
