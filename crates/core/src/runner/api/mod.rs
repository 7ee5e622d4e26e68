//! Calls of the library: one file for each kind of call, on [`Runner`].

mod cursors;
mod end_cause;
mod facts;
mod fleet_signal;
mod list;
mod orphan_states;
mod processes;
mod queues;
mod runner;
mod shutdown;
mod signal;
mod stats;
mod summary;
mod sweep;

pub use runner::{Runner, Surroundings};
pub use stats::Stats;
pub use summary::Summary;
#[cfg(test)]
pub(crate) use sweep::sweep;
