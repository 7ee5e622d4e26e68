//! Floor 2: records and output of jobs, kept beyond the ring, the process and its death.
//!
//! A [`Store`] has two parts. *Records* say what a job was asked to be, whose it is, who records it and what became of it. *Output* is a
//! [`StoredLog`] for each job: frames in append-only segments, each with length and checksum, and marks about every 64 KiB where a
//! replay can begin. What a reader asks for is found by one look at the marks and a replay of a piece through the ring's own
//! code, so that it can't differ from what the ring would have said.
//!
//! [`StateDir`] keeps them in SQLite and files, used by several processes at once; [`Memory`] keeps them until the process ends.
//! A job has one owner, the process that records it: whoever finds that an owner has ended may claim its jobs.

mod buffers;
mod files;
mod frame;
mod log_writer;
mod mark;
mod media;
mod memory;
mod owners;
mod record;
mod replay;
mod skim;
mod sqlite;
mod state_dir;
mod store;
mod stored_log;

pub use frame::{Body, Frame, Parsed, parse};
pub use log_writer::{LogLimits, LogWriter, Unsynced};
pub use memory::Memory;
pub use record::Record;
pub use state_dir::StateDir;
pub use store::{Bounds, Filter, Store, StoreError};
pub use stored_log::{StoredEnd, StoredLog};
