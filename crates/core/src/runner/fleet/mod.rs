//! Fleets: one task rolls out each fleet and merges the output of its members.
//!
//! # Theory of operation
//!
//! A fleet is a job whose far end is this room. One task per fleet asks the pure
//! [`Rollout`](sshjobs_job::Rollout) which member to start next, and starts it as a job of its own.
//! For each member that runs, a task reads the member's lines as any reader would, and sends them,
//! with the member's number, to the queue of the fleet's recorder. The queue has a bound: a fleet
//! whose log can't be stored as fast makes its member tasks wait, and they pace their members.
//!
//! Of a fleet with more hosts than may run at a time, [`connect_ahead`] makes the connections, in two stages: the
//! TCP connection and the login. A member enters the roll-out once its host has answered or has failed to.
//!
//! When a member has ended and all of its lines are in the fleet's log, its lines are dropped from
//! memory: the store has them. Its end goes back to the roll-out, which decides whether others
//! start, and when the member is tried again.
//!
//! A new process continues the fleet of one that was killed from the fleet's log: it counts the
//! lines of each member there, follows the members that run, and starts those that never did.
//! Starting a fleet and starting its members is the same function, so fleets reach their task
//! through a channel.

mod connect_ahead;
mod controls;
mod recent_ends;
mod run_fleet;

pub(crate) use run_fleet::run_fleets;
