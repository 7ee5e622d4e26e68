//! Jobs of other processes: finding, opening and mirroring them, and taking over those whose
//! process has ended.
//!
//! # Theory of operation
//!
//! All processes of a user share a state directory. Each holds a lock on a file with its name while
//! it lives, and each record names the owner of its job. A job whose owner's lock is free is an
//! orphan.
//!
//! `find.rs` searches for a job: in the registry, after adopting it if it is a durable orphan; then
//! among foreign jobs that are open already; then in the store. An open foreign job has a task
//! (`mirror.rs`) that copies new frames of its log, and once a second its record, until no reader
//! has asked for the job for ten minutes. The log ends before the record says so; the task waits up
//! to ten seconds for the record.
//!
//! `adopt.rs` claims durable orphans, at once when one is asked for and otherwise within a second,
//! and continues to follow and record them where the stored log ends. A claim is a compare-and-set
//! on the record: of two processes one wins, and the other reads. `open.rs` closes attached orphans:
//! nothing can continue them. Processes that they left on a host are ended by `end_orphans.rs` when
//! a connection to the host exists.
//!
//! In a cluster, `lose.rs` gives up the jobs of a host that another machine has taken over while
//! this one was paused or could not reach NATS. `hand_over.rs` hands hosts over on purpose: it stops
//! recording, waits until everything is stored, turns the jobs into foreign ones, and only then
//! gives the host away.

mod adopt;
mod end_orphans;
mod find;
mod hand_over;
mod lose;
mod mirror;
mod open;

pub(crate) use adopt::adopt;
pub(crate) use end_orphans::{end_leftovers, end_leftovers_at_last};
pub(crate) use find::lookup;
pub(crate) use hand_over::{balance, hand_over_all};
pub(crate) use lose::handle_store_events;
pub(crate) use mirror::look_at_record;
