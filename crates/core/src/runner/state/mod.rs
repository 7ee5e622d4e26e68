//! State shared by the runner's tasks, and its limits and errors.
//!
//! Everything here is behind short locks that are never held across an await. A job is in the
//! registry from its reservation until it is evicted; a tombstone stays for a day.

mod error;
mod followers;
mod foreign_jobs;
mod keys;
mod limits;
mod lookup;
mod meter;
mod missing_gpus;
mod order;
mod queues;
mod registry;
mod screens;
mod secret_reader;
mod sessions;
mod shared;
mod stdin;
mod tasks;

pub use error::{SignalError, SpawnError, WriteError, chain};
pub(crate) use followers::{Followed, Follower, Followers};
pub(crate) use foreign_jobs::ForeignJobs;
pub use limits::Limits;
pub use lookup::{Lookup, Tombstone};
pub(crate) use meter::{Growth, Meter};
pub use missing_gpus::MissingGpus;
pub use order::{Key, StartOrder};
pub(crate) use queues::{QueueMember, QueueTurn};
pub use queues::{QueuePlace, QueueRule};
pub(crate) use registry::Registry;
pub(crate) use screens::Screens;
pub use secret_reader::SecretReader;
pub(crate) use sessions::{FollowerSession, SessionStart, Sessions};
pub use shared::Observer;
pub(crate) use shared::{FleetToRun, QueuedJob, RunnerState};
pub(crate) use stdin::JobStdin;
pub(crate) use tasks::RunnerTasks;
