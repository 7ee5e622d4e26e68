//! Storing the output and the records of this process's jobs.

mod storing;

pub(crate) use storing::{FLUSH_TO_END, FLUSH_TO_READ, Registration, Storing};
