//! Storing the output and the records of this process's jobs.

mod storing;

pub(crate) use storing::{Admission, FLUSH_TO_END, FLUSH_TO_READ, Storing};
