//! Durable jobs: starting them on their hosts and following their output.

mod follow_host;
mod launch;
mod spool_calls;

pub(crate) use follow_host::{ask, begin_following, outcome};
pub(crate) use launch::{
    leave_recording_from, resume_durable, start_durable, start_on_host, stdin_on_host,
};
pub(crate) use spool_calls::install;
