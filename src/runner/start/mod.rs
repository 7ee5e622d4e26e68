//! Starting jobs: reserve, open a channel, send the command, leave the job to its recorder.

mod first_output;
mod open_channel;
mod spawn;

pub(crate) use spawn::spawn;
