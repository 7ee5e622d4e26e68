//! Jobs of other processes: finding, opening and mirroring them, and taking over those whose
//! process has ended.

mod adopt;
mod end_orphans;
mod find;
mod mirror;
mod open;

pub(crate) use adopt::adopt;
pub(crate) use end_orphans::{end_leftovers, end_leftovers_at_last};
pub(crate) use find::lookup;
pub(crate) use mirror::look_at_record;
