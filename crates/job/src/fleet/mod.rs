//! Fleets: one command on many hosts, as one job. [`FleetPlan`] says which command runs where,
//! [`Rollout`] decides which member may start when, [`Fleet`] has the members' states,
//! [`FleetSummary`] groups their outcomes, and [`prefixed`] formats
//! their lines for display.

mod fleet;
mod fold;
mod member;
mod plan;
mod prefix;
mod printed;
mod rollout;
mod summary;

pub use fleet::Fleet;
pub use fold::{MOST as MOST_NAMES, RangeError, fold, holds_address, unfold, words};
pub use member::{Member, MemberProgress, MemberResult};
pub use plan::{FleetPlan, StopAfter};
pub use prefix::{prefixed, split_old_line};
pub use printed::PrintedSummary;
pub use rollout::{MemberEnd, Rollout};
pub use summary::{FleetCounts, FleetSummary, MemberGroup};
