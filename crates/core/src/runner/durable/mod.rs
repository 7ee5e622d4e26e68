//! Durable jobs: starting them on their hosts and following their output.
//!
//! # Theory of operation
//!
//! A host starts a durable job under a supervisor (`spool/spool.sh`), which outlives us. `launch.rs`
//! sends the start order and repeats it until the host confirms it.
//!
//! For each host that has durable jobs, one task ([`follow_host`]) keeps one session: a channel on
//! which the host's follower script sends the output of all of these jobs as frames (`session.rs`). The
//! task hands each frame to the job's queue (`frames.rs`). A recording task per job (`record.rs`) takes events from the queue
//! and writes the log. The queue has a bound: a job whose store is slow stops the session of its
//! host, and its output waits there in files.
//!
//! A session can end at any time. The next one continues at the offsets that were received, so
//! nothing is lost or repeated. It also starts again when the host skipped output, or reported
//! output of a job before the job was registered here. The pause before a new session grows, unless
//! the session brought new output or lasted ten seconds.
//!
//! A job that starts while a session runs is added to it by the start order itself. The answer says
//! whether the session was notified; if not, a new session starts with all jobs.
//!
//! Stdin (`controls.rs`) does not use the session: a short command writes each piece at a known
//! offset. `spool_calls.rs` installs the scripts where they are missing.

mod controls;
mod follow_host;
mod frames;
mod launch;
mod record;
mod session;
mod spool_calls;

pub(crate) use controls::stdin_on_host;
pub(crate) use follow_host::ask;
pub(crate) use frames::outcome;
pub(crate) use launch::{repeat_start, start_on_host};
pub(crate) use record::{follow_again, record_started};
pub(crate) use session::{SshSessions, begin_following};
pub(crate) use spool_calls::{fenced, install, run_on};
#[cfg(test)]
pub(crate) use {follow_host::follower_of, record::follow_new};
