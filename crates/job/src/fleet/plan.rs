//! The plan of a fleet: hosts, and how fast they start.

use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use sshjobs_output::MemberNo;

/// The hosts on which a command runs, and the order in which it starts.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FleetPlan {
    /// The hosts, without duplicates, in the order in which they start.
    // Shared, so that a clone of the plan of ten thousand hosts is cheap.
    pub members: Arc<[String]>,
    /// Maximum members that run at the same time. At least 1.
    pub max_parallel: usize,
    /// Number of members that start first. The others start when all of these have succeeded.
    pub canary: usize,
    /// Number of failures after which no further member starts.
    pub stop_after: Option<StopAfter>,
    /// How often a member that failed to start is tried again.
    pub retries: u32,
}

/// Number of failures after which no further member starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum StopAfter {
    /// This many failures. At least 1.
    Count(usize),
    /// This percentage of all members. 1 to 100.
    Percent(u8),
}

/// Default for `max_parallel`.
pub(super) const MAX_PARALLEL: usize = 64;

impl FleetPlan {
    /// The command on these hosts, 64 at a time, without canary, failure limit or retries.
    pub fn new(members: Vec<String>) -> Self {
        Self {
            members: members.into(),
            max_parallel: MAX_PARALLEL,
            canary: 0,
            stop_after: None,
            retries: 0,
        }
    }

    /// The host of a member.
    pub fn host(&self, member: MemberNo) -> Option<&str> {
        self.members.get(member.index()).map(String::as_str)
    }
}

impl StopAfter {
    /// Whether `failed` of `members` reach the limit.
    pub(super) fn is_met(self, failed: usize, members: usize) -> bool {
        match self {
            Self::Count(count) => failed >= count,
            Self::Percent(percent) => failed > 0 && failed * 100 >= members * usize::from(percent),
        }
    }
}

impl FromStr for StopAfter {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let stop = match text.strip_suffix('%') {
            Some(percent) => {
                percent.parse().ok().filter(|n| (1..=100).contains(n)).map(Self::Percent)
            }
            None => text.parse().ok().filter(|count| *count > 0).map(Self::Count),
        };
        stop.ok_or("use a number of hosts, such as 3, or a share of them, such as 10%")
    }
}

impl From<StopAfter> for String {
    fn from(stop: StopAfter) -> Self {
        match stop {
            StopAfter::Count(count) => count.to_string(),
            StopAfter::Percent(percent) => format!("{percent}%"),
        }
    }
}

impl TryFrom<String> for StopAfter {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_stop_is_a_count_or_a_share() {
        assert_eq!("3".parse(), Ok(StopAfter::Count(3)));
        assert_eq!("10%".parse(), Ok(StopAfter::Percent(10)));
        for text in ["0", "0%", "101%", "-1", "x", "", "%", "1.5"] {
            assert!(text.parse::<StopAfter>().is_err(), "{text}");
        }
        assert!(StopAfter::Percent(10).is_met(5, 50) && !StopAfter::Percent(10).is_met(4, 50));
        assert!(StopAfter::Count(1).is_met(1, 50) && !StopAfter::Percent(1).is_met(0, 50));
    }
}
