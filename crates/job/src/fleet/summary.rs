//! Counts and groups of a fleet's members.

use std::collections::BTreeMap;

use super::{FleetPlan, Member, MemberEnd, MemberProgress, fold};
use crate::Outcome;

/// Member counts by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FleetCounts {
    /// Members whose command exited with 0.
    pub ok: usize,
    /// Members whose command failed or was lost.
    pub failed: usize,
    /// Members that could not be started: the host was unreachable, or refused.
    pub unreachable: usize,
    /// Members that were started and have not ended.
    pub running: usize,
    /// Members that were not started.
    pub not_started: usize,
}

/// Outcome of a fleet. Members with the same outcome and the same output form a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetSummary {
    /// Member counts by state.
    pub counts: FleetCounts,
    /// Members that have ended or never started: failed groups last, otherwise the largest first.
    pub groups: Vec<MemberGroup>,
    /// The failures after which no further member started, in words.
    pub stopped_by: Option<String>,
}

/// Members with the same outcome and output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemberGroup {
    /// Their names, in the order of the plan.
    pub members: Vec<String>,
    /// Their outcome. `None` for members that never started.
    pub outcome: Option<Outcome>,
    /// Number of lines that each printed.
    pub lines: u64,
    /// Last lines of each.
    pub last: Vec<String>,
}

impl FleetCounts {
    /// Counts these members.
    pub fn of(members: &[Member]) -> Self {
        let mut counts = Self::default();
        for member in members {
            let count = match &member.progress {
                MemberProgress::Waiting => &mut counts.not_started,
                MemberProgress::Started { .. } | MemberProgress::Retrying(_) => &mut counts.running,
                MemberProgress::Ended(result) => match MemberEnd::of(&result.outcome) {
                    MemberEnd::Ok => &mut counts.ok,
                    MemberEnd::Failed => &mut counts.failed,
                    MemberEnd::NotStarted => &mut counts.unreachable,
                },
            };
            *count += 1;
        }
        counts
    }

    /// Number of members that failed, were unreachable or never started.
    pub fn bad(&self) -> usize {
        self.failed + self.unreachable + self.not_started
    }
}

impl FleetSummary {
    /// The outcomes of members, grouped.
    pub fn of(members: &[Member]) -> Self {
        let mut groups: BTreeMap<(u8, String, &str), MemberGroup> = BTreeMap::new();
        for member in members {
            let is_open = matches!(
                member.progress,
                MemberProgress::Started { .. } | MemberProgress::Retrying(_)
            );
            if is_open {
                continue;
            }
            let rank = match member.end() {
                Some(MemberEnd::Ok) => 0,
                Some(MemberEnd::Failed) => 1,
                Some(MemberEnd::NotStarted) => 2,
                None => 3,
            };
            let result = member.result();
            let outcome = result.map(|result| result.outcome.clone());
            let digest = result.map_or("", |result| result.digest.as_str());
            groups
                // As text, because an `Outcome` has no order.
                .entry((rank, format!("{outcome:?}"), digest))
                .or_insert_with(|| MemberGroup {
                    members: Vec::new(),
                    outcome,
                    lines: result.map_or(0, |result| result.lines),
                    last: result.map(|result| result.last.clone()).unwrap_or_default(),
                })
                .members
                .push(member.name.clone());
        }
        let mut ranked: Vec<_> =
            groups.into_iter().map(|((rank, ..), group)| (rank, group)).collect();
        // A stable sort, so that groups of equal size keep the order of the map in each call.
        ranked.sort_by_key(|(rank, group)| (*rank, std::cmp::Reverse(group.members.len())));
        Self {
            counts: FleetCounts::of(members),
            groups: ranked.into_iter().map(|(_, group)| group).collect(),
            stopped_by: None,
        }
    }
}

impl FleetPlan {
    /// Why no further member starts, in words: the failures that stopped the roll-out. `None` if there are none.
    pub fn why_stopped(&self, members: &[Member]) -> Option<String> {
        let is_bad = |member: &&Member| member.end().is_some_and(|end| end != MemberEnd::Ok);
        if let Some(canary) = members.iter().take(self.canary).find(is_bad) {
            return Some(format!("the canary {} failed", canary.name));
        }
        let failed = members.iter().filter(is_bad).count();
        let is_met = self.stop_after.is_some_and(|stop| stop.is_met(failed, members.len()));
        let hosts = if failed == 1 { "host" } else { "hosts" };
        is_met.then(|| format!("the limit of failures is reached: {failed} {hosts} failed"))
    }
}

impl MemberGroup {
    /// Their names, with consecutive numbers as ranges.
    pub fn folded(&self) -> String {
        fold(self.members.iter().map(String::as_str))
    }

    /// Their end, as the roll-out counts it. `None` for members that never started.
    pub fn end(&self) -> Option<MemberEnd> {
        self.outcome.as_ref().map(MemberEnd::of)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::PrintedSummary;
    use crate::{Exit, JobId, StopAfter};
    use sshjobs_output::{Stream, time_of};

    fn member(name: &str, status: u32, lines: &[&str]) -> Member {
        let mut member = Member::new(name);
        let mut printed = PrintedSummary::default();
        lines.iter().for_each(|line| printed.note(Stream::Stdout, line));
        member.job = Some(JobId::new(name));
        member.note_end(Outcome::Ended(Exit::Status(status)), printed, time_of(0));
        member
    }

    #[test]
    fn members_that_ended_alike_are_one_group_and_failed_groups_come_last() {
        let mut members: Vec<_> =
            (1..=3).map(|n| member(&format!("web{n}"), 0, &["nginx/1.26"])).collect();
        members.insert(1, member("web9", 1, &["no nginx"]));
        members.push(member("web4", 0, &["nginx/1.24"]));
        members.push(Member::new("web5"));
        let summary = FleetSummary::of(&members);
        let shown: Vec<_> = summary
            .groups
            .iter()
            .map(|group| (group.folded(), group.last.join("|")))
            .collect();
        let expected = [
            ("web[1-3]", "nginx/1.26"),
            ("web4", "nginx/1.24"),
            ("web9", "no nginx"),
            ("web5", ""),
        ];
        assert_eq!(
            shown,
            expected.map(|(names, last)| (names.to_owned(), last.to_owned()))
        );
        let counts = FleetCounts {
            ok: 4,
            failed: 1,
            not_started: 1,
            ..FleetCounts::default()
        };
        assert_eq!((summary.counts, summary.counts.bad()), (counts, 2));
    }

    #[test]
    fn a_fleet_says_which_failures_stopped_it() {
        let plan = |canary, stop_after| FleetPlan {
            canary,
            stop_after,
            ..FleetPlan::new(["web1", "web2", "web3"].map(str::to_owned).to_vec())
        };
        let mut members: Vec<Member> =
            ["web1", "web2", "web3"].iter().map(|name| Member::new(name)).collect();
        assert_eq!(
            plan(1, Some(StopAfter::Count(1))).why_stopped(&members),
            None
        );

        let failed = Outcome::Ended(Exit::Status(1));
        members[0].note_end(failed, PrintedSummary::default(), time_of(0));

        assert_eq!(
            plan(1, None).why_stopped(&members).as_deref(),
            Some("the canary web1 failed")
        );
        assert_eq!(
            plan(0, Some(StopAfter::Percent(10))).why_stopped(&members).as_deref(),
            Some("the limit of failures is reached: 1 host failed")
        );
        assert_eq!(
            plan(0, Some(StopAfter::Count(2))).why_stopped(&members),
            None
        );
    }

    proptest! {
        #[test]
        fn every_member_is_in_one_group_with_those_like_it(
            ends in prop::collection::vec((0u32..3, 0usize..3), 1..60)
        ) {
            let texts = [&[][..], &["x"], &["x", "y"]];
            let members: Vec<_> = ends.iter().enumerate()
                .map(|(n, (status, text))| member(&format!("h{n}"), *status, texts[*text])).collect();
            let groups = FleetSummary::of(&members).groups;
            let total: usize = groups.iter().map(|group| group.members.len()).sum();
            prop_assert_eq!(total, members.len());
            let mut kinds = std::collections::BTreeSet::new();
            for group in &groups {
                let of = |name: &String| ends[name.trim_start_matches('h').parse::<usize>().unwrap()];
                let first = of(&group.members[0]);
                prop_assert!(group.members.iter().all(|name| of(name) == first));
                prop_assert!(kinds.insert(first), "no two groups are alike");
            }
        }
    }
}
