//! The start of a job, from an order to a task that records it.
//!
//! # Theory of operation
//!
//! `spawn` takes four steps:
//!
//! 1. *Reserve* (`reserve.rs`): the job gets a slot in the registry, unless its idempotency key is
//!    in use. No network and no file is involved.
//! 2. *Register* (`register.rs`): the records thread stores that the job exists. With an
//!    idempotency key the store also finds out whether another process used the key before; then
//!    that job is the result.
//!    A job that comes after others or is in a queue then waits for its turn (`wait_for_turn.rs`).
//! 3. *Launch* (`launch.rs`): something runs on the host. An attached job gets a channel with its
//!    command (`launch_attached.rs`, with `open_channel.rs` and `send_command.rs`), a durable one a
//!    supervisor on its host (`launch_durable.rs`), and a fleet its roll-out (`launch_fleet.rs`).
//! 4. *Record* (`record_attached.rs`, `durable/record.rs`): a task of the runner follows the job to
//!    its end.
//!
//! Steps 1 and 2 run in the call. Steps 3 and 4 run in a task of the runner, because a command that
//! was sent must be recorded even if the caller is gone.
//!
//! A [`SlotReservation`](reserve::SlotReservation) owns the job until its launch succeeds. If it is dropped
//! before, because a step failed or the task was aborted, the job ends as not started: its slot and
//! its key are free again, and its record is removed, or gets the reason if a caller has the id.
//!
//! The caller abandons the start by dropping the call, and other callers by a signal to the job.
//! Both cancel the same token. The launch obeys it up to the moment at which the command, or the
//! order to start a durable job, is sent; later the token has no effect. If the caller's timeout
//! passes first, the call returns the starting job, and the launch continues.
//!
//! A repetition of a start that a person has approved starts nothing (`find_started.rs`): one approval is for
//! one job.
//!
//! Registration and launch overlap where they can. An attached job dies with this process, so
//! nothing is lost if its record comes late. A durable job outlives the process, and a process that
//! finds it needs its record, which must therefore exist before the job does.

mod find_started;
mod first_output;
mod launch;
mod launch_attached;
mod launch_durable;
mod launch_fleet;
mod open_channel;
mod record_attached;
mod register;
mod reserve;
mod send_command;
mod spawn;
mod wait_for_turn;

pub(crate) use find_started::find_started;
pub(crate) use launch::launch_queued;
pub(crate) use spawn::{spawn, spawn_member};
