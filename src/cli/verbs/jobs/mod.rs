//! Verbs on existing jobs.

mod attach;
mod finish;
mod forget;
mod jobs;
mod lines;
mod log;
mod pick;
mod read;
mod screen;
mod search;
mod signal;
mod tail;
mod wait;
mod write;

pub use attach::attach;
pub use forget::forget;
pub(crate) use jobs::age;
pub use jobs::jobs;
pub use log::log;
pub use read::read;
pub use screen::screen;
pub use search::search;
pub use signal::signal;
pub use tail::tail;
pub use wait::wait;
pub use write::write;
