//! `run` on many hosts: selects the hosts, labels their lines, shows progress and summary, and
//! writes files for CI and in the format of GNU parallel.

mod host_result;
mod hosts;
mod joblog;
mod junit;
mod progress;
mod run;
mod summary;
mod view;

pub(super) use host_result::HostResult;
pub(super) use hosts::{is_meant, named, on_hosts, split};
pub(super) use joblog::{check_writable, write_joblog};
pub(super) use junit::write_junit;
pub(super) use run::{members, run};
