//! Output is stored before it is shown.
//!
//! # Theory of operation
//! A job's recorder puts events into its `OutputQueue`, and readers see them in its [`Log`](crate::Log).
//! Between the two is the [`OutputStore`], whose threads take a [`Batch`], write it, and then have the job show it.
//! So whatever a reader has seen is in the store, and another process that takes the job over gives each line the
//! same number. The recorder never waits for a disk: it takes nothing more from the host while the queue is
//! long ([`Job::wait_for_store`](crate::Job::wait_for_store)).
//!
//! A queue is in one of five states:
//!
//! | state | an event arrives | the store takes a batch | the attempt to write it ends |
//! |---|---|---|---|
//! | empty | called | – | – |
//! | called | called | storing, or empty if nothing waits | – |
//! | storing | storing | – | the batch is shown: called |
//! | storing shown output | the same | – | called |
//! | given up | the event is dropped | nothing is taken | the batch is dropped |
//!
//! If the store stands still, output is shown early, and is perhaps never stored: while a disk hangs
//! ([`Job::show_overdue`](crate::Job::show_overdue)), or when too much waits. Then a batch that is being written is shown before it is
//! stored, and events that no batch has leave a gap, which the next batch marks with a checkpoint. A store
//! that other machines read gives them numbers, too, so there the end of a job waits in any case.
//!
//! Locks are taken in this order: the store's writer, the job's scrubbing, its queue, its log.

mod output_store;
mod queue;
mod storage;

pub use output_store::{EndOfJob, OutputStore, StoreLoad};
pub use queue::Batch;
pub(crate) use queue::{OutputQueue, StoreAttempt};
pub use storage::Storage;
