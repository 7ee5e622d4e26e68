//! Fleets: one task rolls out each fleet and merges the output of its members.

mod controls;
mod roll_out;

pub(crate) use roll_out::run_fleets;
