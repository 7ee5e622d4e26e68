//! Floor 2: records and output of jobs, kept beyond the ring and the process.
//!
//! A [`Store`] has two parts. *Records* have a job's specification, owner, recording process and
//! outcome. *Output* is a [`StoredLog`] for each job: frames in append-only segments, each with
//! length and checksum, and marks about every 64 KiB at which a replay can start. A read finds its
//! mark and replays a piece through the ring's own code, so that it returns the same as the ring
//! would have.
//!
//! [`StateDir`] keeps them in SQLite and files, shared by several processes. [`Memory`] keeps them
//! until the process ends. A job has one owner, the process that records it; when an owner has
//! ended, another process may claim its jobs.

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

pub use frame::{Body, Frame, Parsed, Seal, parse};
pub use log_writer::{LogLimits, LogWriter, Unsynced};
pub use memory::Memory;
pub use record::Record;
pub use state_dir::StateDir;
pub use store::{Bounds, Filter, Store, StoreError};
pub use stored_log::{StoredEnd, StoredLog};
