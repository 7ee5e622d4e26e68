//! `run` on many hosts: which hosts are meant, their lines behind their names, the progress, the summary, and the files that CI and
//! GNU parallel's users know.

mod hosts;
mod joblog;
mod junit;
mod progress;
mod run;
mod summary;
mod view;

pub(super) use hosts::{is_meant, named, on_hosts, split};
pub(super) use run::{members, run};
