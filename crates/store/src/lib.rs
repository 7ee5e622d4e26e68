//! Records and output of jobs, kept beyond the ring and the process.
//!
//! A [`Store`] has two parts. *Records* have a job's specification, owner, recording process and
//! outcome. *Output* is a [`StoredLog`] for each job: frames in append-only segments, each with
//! length and checksum, and marks about every 64 KiB at which a replay can start. A read finds its
//! mark and replays a piece through the ring's own code, so that it returns the same as the ring
//! would have.
//!
//! [`StateDir`] keeps them in SQLite and files, shared by several processes. A job has one owner, the process that records it; when an owner has
//! ended, another process may claim its jobs.

#![cfg_attr(
    not(feature = "sqlite"),
    allow(dead_code, reason = "parts of the state directory")
)]

#[cfg(any(test, feature = "test-support"))]
mod buffers;
mod cluster_status;
mod copy_report;
mod error;
#[cfg(any(test, feature = "test-support"))]
mod faulty_media;
mod files;
mod filter;
mod frame;
mod kept_head;
mod local_text;
mod log_writer;
mod mark;
mod media;
#[cfg(any(test, feature = "test-support"))]
mod memory;
mod owners;
mod peers;
mod record;
mod replay;
mod shared_text;
mod shared_value;
mod skim;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(feature = "sqlite")]
mod state_dir;
mod store;
mod stored_log;
#[cfg(feature = "sqlite")]
mod upkeep;

pub use cluster_status::{
    ClusterStatus, HostStatus, NatsStatus, OwnStatus, ReplicaState, ReplicaStatus, StreamStatus,
};
pub use copy_report::{CopyReport, JobLeft};
pub use error::StoreError;
#[cfg(any(test, feature = "test-support"))]
pub use faulty_media::DiskFault;
pub use frame::{Body, Frame, Parsed, Seal, parse};
pub use kept_head::KeptHead;
pub use local_text::MemoryText;
pub use log_writer::{CompleteSegment, LogLimits, SegmentWriter, Unsynced};
pub use mark::ReplayMark;
pub use media::{Blob, Media, News, OpenMode, SegmentPart, read_all, read_into};
#[cfg(any(test, feature = "test-support"))]
pub use memory::Memory;
pub use peers::{HostPlace, PeerStream, Peers};
pub use record::Record;
pub use shared_text::{SharedText, Versioned};
pub use shared_value::{SharedValue, SharedValueError};
#[cfg(feature = "sqlite")]
pub use state_dir::StateDir;
pub use store::{Filter, Store, StoreEvent, StoreLimits};
pub use stored_log::{StoredEnd, StoredLog};
#[cfg(feature = "sqlite")]
pub use upkeep::{
    ArchiveReport, DamagedOutput, RepairReport, StateCheck, back_up, check_state, repair_state,
    restore,
};
