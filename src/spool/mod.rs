//! Floor 1: the far end of durable jobs, as text: what is run on the host, what it is told, and what it says.
//!
//! A durable job lives in a directory of its own on the host, its *spool*. `spool.sh` starts it there at most once, under a
//! supervisor in a session of its own, which lets the job write straight into files and notes how it ended. One *follower* a
//! host reports the growth of all of its jobs' files from given offsets, so that it can be started again after any break. This
//! room knows the shell text and the frames; `runner` carries them.

mod commands;
mod frames;
mod order;

pub use commands::{
    Answer, FollowFrom, RESULT, eof, follow, forget, install, note_signal, scripts, start, sweep, write,
};
pub use frames::{Frames, SpoolEnd, SpoolFrame};
pub use order::{Order, StartError, Stdin};
