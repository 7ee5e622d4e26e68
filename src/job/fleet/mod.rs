//! One command on many hosts, as one job: what is to be run where ([`FleetPlan`]), which member may start when ([`Rollout`]), what has
//! become of each ([`Fleet`]) and of all ([`FleetSummary`]), and how their lines share one log ([`prefixed`]).

mod fleet;
mod fold;
mod member;
mod plan;
mod prefix;
mod printed;
mod rollout;
mod summary;

pub use fleet::Fleet;
pub use fold::{MOST as MOST_NAMES, RangeError, fold, unfold, words};
pub use member::Member;
pub use plan::{FleetPlan, StopAfter};
pub use prefix::{member_of, prefixed};
pub use printed::Printed;
pub use rollout::{MemberEnd, Rollout};
pub use summary::{FleetCounts, FleetSummary, MemberGroup};
