//! The stored output of a job: the two ends of its queue, and what readers get from the store.

mod archived;
mod ends;
