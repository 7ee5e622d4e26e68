//! The stored output of a job: access to its queue, and reads from the store.

mod archived;
mod queue_access;
