//! Decides which member starts next, and when one that failed to start is tried again. Pure, with a
//! model in its tests.

use std::collections::VecDeque;
use std::time::Duration;

use super::{FleetPlan, StopAfter};
use crate::{Exit, Outcome};

/// Pause before the second attempt to start a member.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Decides which member of a fleet may start when. Pure: callers report events, and it starts
/// nothing itself.
#[derive(Debug)]
pub struct Rollout {
    members: usize,
    max_parallel: usize,
    canary: usize,
    stop_after: Option<StopAfter>,
    retries: u32,
    waiting: VecDeque<usize>,
    /// Attempts to start each member.
    tries: Vec<u32>,
    running: usize,
    /// Members that wait for a retry, or for their connection.
    pausing: usize,
    /// Members that have succeeded.
    ok: usize,
    failed: usize,
    is_stopped: bool,
}

/// The end of a member, as the roll-out counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberEnd {
    /// The command exited with 0.
    Ok,
    /// The command failed or was lost.
    Failed,
    /// The member was never started: the host was unreachable, or refused.
    NotStarted,
}

impl MemberEnd {
    /// Classifies an outcome.
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Ended(Exit::Status(0)) => Self::Ok,
            Outcome::NotStarted(_) | Outcome::Refused => Self::NotStarted,
            Outcome::Ended(_) | Outcome::Lost(..) | Outcome::Closed | Outcome::TimedOut(_) => {
                Self::Failed
            }
        }
    }
}

impl Rollout {
    /// No member has started.
    pub fn new(plan: &FleetPlan) -> Self {
        let members = plan.members.len();
        Self {
            members,
            max_parallel: plan.max_parallel.max(1),
            canary: plan.canary.min(members),
            stop_after: plan.stop_after,
            retries: plan.retries,
            waiting: (0..members).collect(),
            tries: vec![0; members],
            running: 0,
            pausing: 0,
            ok: 0,
            failed: 0,
            is_stopped: false,
        }
    }

    /// Holds all members that wait, each until it has [arrived](Self::arrive).
    pub fn hold_all(&mut self) {
        self.pausing += self.waiting.len();
        self.waiting.clear();
    }

    /// Ends the pause of a member that was held: queues it before the members that come after it.
    pub fn arrive(&mut self, member: usize) {
        self.pausing = self.pausing.saturating_sub(1);
        let place = self.waiting.iter().position(|other| *other > member);
        self.waiting.insert(place.unwrap_or(self.waiting.len()), member);
    }

    /// Starts the next member, if one may start.
    pub fn start(&mut self) -> Option<usize> {
        if self.is_stopped || self.running >= self.max_parallel {
            return None;
        }
        // Canaries have the smallest indices, and no member of their fleet is held, so they come first.
        let next = *self.waiting.front()?;
        let is_canary = next < self.canary;
        // All canaries must succeed before another member starts.
        if !is_canary && self.ok < self.canary {
            return None;
        }
        self.waiting.pop_front();
        self.running += 1;
        if let Some(tries) = self.tries.get_mut(next) {
            *tries += 1;
        }
        Some(next)
    }

    /// Notes that a running member has ended. If it failed to start and is to be tried again,
    /// returns the pause before its [`retry`](Self::retry).
    pub fn end(&mut self, member: usize, end: MemberEnd) -> Option<Duration> {
        // A member that pauses before a retry leaves its place to another.
        self.running = self.running.saturating_sub(1);
        let tries = self.tries.get(member).copied().unwrap_or_default();
        // `tries` counts the first attempt, which is not a retry.
        if end == MemberEnd::NotStarted && tries <= self.retries && !self.is_stopped {
            self.pausing += 1;
            return Some(pause_after(tries));
        }
        if end == MemberEnd::Ok {
            self.ok += 1;
            return None;
        }
        self.failed += 1;
        let is_enough = self.stop_after.is_some_and(|stop| stop.is_met(self.failed, self.members));
        // After a failed canary, `ok` can never reach `canary`: the others would wait forever.
        self.is_stopped |= is_enough || member < self.canary;
        None
    }

    /// Ends a member's pause: queues it before the members that were not tried yet.
    pub fn retry(&mut self, member: usize) {
        self.pausing = self.pausing.saturating_sub(1);
        self.waiting.push_front(member);
    }

    /// Keeps further members from starting.
    pub fn stop(&mut self) {
        self.is_stopped = true;
    }

    /// Whether no further member starts.
    pub fn is_stopped(&self) -> bool {
        self.is_stopped
    }

    /// Whether no member runs and none may start.
    pub fn is_over(&self) -> bool {
        let may_start = !self.waiting.is_empty() || self.pausing > 0;
        // A stopped roll-out waits for running members and not for pauses.
        self.running == 0 && (self.is_stopped || !may_start)
    }
}

/// The pause before a member is started again. It doubles with each attempt.
fn pause_after(tries: u32) -> Duration {
    // Limited before the shift, which would overflow; 2^5 s exceeds the longest pause.
    let doublings = tries.saturating_sub(1).min(5);
    (FIRST_PAUSE * (1 << doublings)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn plan(members: usize) -> FleetPlan {
        FleetPlan::new((0..members).map(|member| format!("h{member}")).collect())
    }

    fn all(rollout: &mut Rollout) -> Vec<usize> {
        std::iter::from_fn(|| rollout.start()).collect()
    }

    #[test]
    fn at_most_the_allowed_number_of_members_runs() {
        let mut rollout = Rollout::new(&FleetPlan {
            max_parallel: 2,
            ..plan(3)
        });
        assert_eq!(all(&mut rollout), [0, 1]);
        rollout.end(1, MemberEnd::Failed);
        assert_eq!(all(&mut rollout), [2]);
        rollout.end(0, MemberEnd::Ok);
        assert!(!rollout.is_over());
        rollout.end(2, MemberEnd::Ok);
        assert!(rollout.is_over());
    }

    #[test]
    fn the_others_start_when_all_canaries_have_succeeded() {
        let mut rollout = Rollout::new(&FleetPlan {
            canary: 2,
            ..plan(4)
        });
        assert_eq!(all(&mut rollout), [0, 1]);
        rollout.end(0, MemberEnd::Ok);
        assert!(all(&mut rollout).is_empty());
        rollout.end(1, MemberEnd::Ok);
        assert_eq!(all(&mut rollout), [2, 3]);
    }

    #[test]
    fn a_canary_that_fails_stops_all() {
        let mut rollout = Rollout::new(&FleetPlan {
            canary: 1,
            ..plan(3)
        });
        assert_eq!(all(&mut rollout), [0]);
        rollout.end(0, MemberEnd::Failed);
        assert!(rollout.is_over() && rollout.is_stopped());
    }

    #[test]
    fn failures_stop_the_rollout_and_those_that_run_go_on() {
        let stop_after = Some(StopAfter::Count(1));
        let mut rollout = Rollout::new(&FleetPlan {
            max_parallel: 2,
            stop_after,
            ..plan(4)
        });
        all(&mut rollout);
        rollout.end(0, MemberEnd::Failed);
        assert!(rollout.start().is_none() && !rollout.is_over());
        rollout.end(1, MemberEnd::Ok);
        assert!(rollout.is_over());
    }

    #[test]
    fn only_what_never_started_is_tried_again() {
        let mut rollout = Rollout::new(&FleetPlan {
            retries: 1,
            ..plan(2)
        });
        all(&mut rollout);
        assert_eq!(rollout.end(0, MemberEnd::Failed), None);
        assert_eq!(rollout.end(1, MemberEnd::NotStarted), Some(FIRST_PAUSE));
        assert!(!rollout.is_over(), "a member pauses");
        rollout.retry(1);
        assert_eq!(all(&mut rollout), [1]);
        assert_eq!(rollout.end(1, MemberEnd::NotStarted), None, "one retry");
        assert!(rollout.is_over());
    }

    #[test]
    fn members_that_are_held_start_in_their_order_once_they_have_arrived() {
        let mut rollout = Rollout::new(&FleetPlan {
            max_parallel: 1,
            ..plan(3)
        });
        rollout.hold_all();
        assert!(rollout.start().is_none() && !rollout.is_over());
        rollout.arrive(2);
        rollout.arrive(0);
        assert_eq!(all(&mut rollout), [0]);
        rollout.end(0, MemberEnd::Ok);
        assert_eq!(all(&mut rollout), [2]);
        rollout.end(2, MemberEnd::Ok);
        assert!(!rollout.is_over(), "one has not arrived");
        rollout.stop();
        assert!(rollout.is_over());
    }

    proptest! {
        #[test]
        fn every_rollout_comes_to_its_end_and_starts_no_member_twice(
            (members, max_parallel, canary) in (1usize..30, 1usize..8, 0usize..4),
            stop in prop::option::of(1usize..10),
            ends in prop::collection::vec(0u8..3, 30),
        ) {
            let stop_after = stop.map(StopAfter::Count);
            let mut rollout = Rollout::new(&FleetPlan { max_parallel, canary, stop_after, ..plan(members) });
            let mut running = VecDeque::new();
            let mut started = Vec::new();
            loop {
                while let Some(member) = rollout.start() {
                    running.push_back(member);
                    started.push(member);
                }
                prop_assert!(running.len() <= max_parallel);
                let Some(member) = running.pop_front() else { break };
                let end = [MemberEnd::Ok, MemberEnd::Failed, MemberEnd::NotStarted][usize::from(ends[member])];
                prop_assert_eq!(rollout.end(member, end), None);
            }
            prop_assert!(rollout.is_over());
            let count = started.len();
            started.sort_unstable();
            started.dedup();
            prop_assert_eq!(started.len(), count);
        }
    }
}
