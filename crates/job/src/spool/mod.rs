//! The far end of durable jobs, as text: the commands run on the host, their input and
//! their output.
//!
//! A durable job has a directory of its own on the host, its *spool*. `spool.sh` starts it there at
//! most once, under a supervisor in a session of its own, which lets the job write straight into
//! files and notes how it ended. One *follower* per host reports the growth of all of its jobs'
//! files from given offsets, so that it can be restarted after any break. This room has the shell
//! text and the frames; `runner` sends them.
//!
//! In a cluster each order has a fencing token ([`Fence`]). The host notes the newest one in a file,
//! and refuses orders with an older one.

mod commands;
mod frames;
mod order;

pub use commands::{
    Fence, FollowFrom, RESULT, SpoolReply, capacity, claim_gpus, count_lines, counted_lines, eof,
    fenced, follow, forget, install, note_signal, resize, scripts, start, sweep, write,
};
pub use frames::{EndFigures, FrameReader, SpoolEnd, SpoolFrame, SpoolLimit};
pub use order::{BecomeOrder, SpoolOrder, SpoolStdin, StartError};
