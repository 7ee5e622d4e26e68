//! A simulation of the runner with faults, in which a seed decides everything.
//!
//! # Theory of operation
//! Real are the follower of a host, the recorders, the registry, the adoption of jobs, the pool of
//! connections, the store's steps, the files of a job (in memory) and the readers. Simulated are the
//! host with its durable jobs ([`host`]), the sessions that send their output ([`session`]), and the
//! threads of the store, whose steps a task makes ([`process`]).
//!
//! Everything runs on one thread with tokio's paused clock, so an hour passes in milliseconds. The faults,
//! their times and all pauses follow from the seed ([`dice`]), so a failure can be repeated from it:
//! `SSHJOBS_SIMULATION_SEED=17 cargo test --lib simulation`. Names of sessions, the order of hash maps and
//! the wall clock are real.
//!
//! [`world`] plays one seed: it starts jobs, breaks things for some seconds, and lets all readers read to
//! the end. Each reader ([`reader`]) checks that it gets each line once, in order, under the same number as
//! other readers; if the disk failed, a line may be missing, but is counted. At the end, exit statuses are
//! right, no channel is in use, and a new process reads each job from its start in the same way.
//!
//! Not simulated: attached jobs, start orders (they always succeed), signals, a reboot of the host, a disk
//! that hangs in the middle of a write or refuses records, deletion of old output.

mod dice;
mod host;
mod process;
mod reader;
mod seeds;
mod session;
mod unstored_end;
mod world;
