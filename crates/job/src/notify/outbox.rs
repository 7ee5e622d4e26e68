//! The list of deliveries, in which all processes with the same store add, claim and finish them.

use serde::{Deserialize, Serialize};

use super::delivery::{Delivery, DeliveryAttempt, DeliveryState};
use super::receiver::Receiver;

/// Deliveries of all processes with the same store, oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outbox {
    deliveries: Vec<Delivery>,
    /// Number of deliveries for which there was no room.
    dropped: u64,
}

/// Time after which a delivery is given up, in milliseconds.
pub const GIVEN_UP_AFTER: u64 = 24 * 3600 * 1000;
/// Lifetime of a claim in milliseconds, longer than an attempt may take.
const CLAIM: u64 = 60 * 1000;
/// Pause after the first failed attempt, in milliseconds. Each further one is twice as long.
const FIRST_PAUSE: u64 = 5 * 1000;
/// Longest pause between attempts, in milliseconds.
const LONGEST_PAUSE: u64 = 3600 * 1000;
/// Time for which a finished delivery is listed, in milliseconds.
const LISTED: u64 = 24 * 3600 * 1000;
/// Maximum deliveries that wait. The list is one message in NATS, of 1 MiB by default.
const MOST: usize = 150;
/// Maximum deliveries that wait for one receiver.
const MOST_OF_RECEIVER: usize = 75;
/// Maximum attempts for one receiver at the same time.
const MOST_CLAIMS_OF_RECEIVER: usize = 2;
/// Maximum finished deliveries that are listed.
const MOST_OVER: usize = 50;

impl Outbox {
    /// All deliveries, oldest first.
    pub fn deliveries(&self) -> &[Delivery] {
        &self.deliveries
    }

    /// Number of deliveries for which there was no room.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Adds a delivery, which is due now, unless it is there already. Returns false, and counts it, if too
    /// many wait in all or for its receiver.
    pub fn add(&mut self, delivery: Delivery, now: u64) -> bool {
        self.clean_up(now);
        if self.deliveries.iter().any(|known| known.id == delivery.id) {
            return true;
        }
        let unfinished: Vec<&Delivery> =
            self.deliveries.iter().filter(|known| !known.state.is_final()).collect();
        let same_receiver = unfinished.iter().filter(|known| known.receiver == delivery.receiver);
        if unfinished.len() >= MOST || same_receiver.count() >= MOST_OF_RECEIVER {
            self.dropped += 1;
            return false;
        }
        self.deliveries.push(delivery);
        true
    }

    /// Claims the delivery that has been due for longest and whose receiver the process knows, for a minute.
    /// A receiver gets two at a time, so that one that hangs does not stop the others. Gives up those that
    /// are too old.
    pub fn claim(&mut self, now: u64, is_known: impl Fn(&Receiver) -> bool) -> Option<Delivery> {
        self.clean_up(now);
        let position = self.first_due(now, is_known)?;
        let due = &mut self.deliveries[position];
        due.attempts += 1;
        due.state = DeliveryState::Claimed(now + CLAIM);
        Some(due.clone())
    }

    /// The position of the delivery that has been due for longest.
    fn first_due(&self, now: u64, is_known: impl Fn(&Receiver) -> bool) -> Option<usize> {
        let due = self.deliveries.iter().enumerate().filter_map(|(position, delivery)| {
            let at = delivery.state.claimable_at().filter(|at| *at <= now)?;
            let is_possible = is_known(&delivery.receiver)
                && self.claims_of(&delivery.receiver, now) < MOST_CLAIMS_OF_RECEIVER;
            is_possible.then_some((at, position))
        });
        due.min().map(|(_, position)| position)
    }

    /// The number of deliveries to a receiver that are being sent.
    fn claims_of(&self, receiver: &Receiver, now: u64) -> usize {
        let of_receiver = self.deliveries.iter().filter(|known| known.receiver == *receiver);
        of_receiver
            .filter(|known| matches!(known.state, DeliveryState::Claimed(until) if until > now))
            .count()
    }

    /// Notes how an attempt ended. Does nothing if another process has tried again meanwhile.
    pub fn finish(&mut self, claimed: &Delivery, attempt: DeliveryAttempt, now: u64) {
        let found = self.deliveries.iter_mut().find(|known| known.id == claimed.id);
        let Some(delivery) = found.filter(|known| known.attempts == claimed.attempts) else {
            return;
        };
        match attempt {
            DeliveryAttempt::Accepted => {
                delivery.state = DeliveryState::Delivered(now);
                delivery.last_error = None;
            }
            DeliveryAttempt::Failed(why) => {
                delivery.state = DeliveryState::Due(now + pause_after(delivery.attempts));
                delivery.last_error = Some(why);
            }
            DeliveryAttempt::Refused(why) => {
                delivery.state = DeliveryState::GivenUp(now);
                delivery.last_error = Some(why);
            }
        }
        self.clean_up(now);
    }

    /// When the next delivery to a known receiver can be claimed. `None` if none waits.
    pub fn next_at(&self, is_known: impl Fn(&Receiver) -> bool) -> Option<u64> {
        self.deliveries
            .iter()
            .filter(|delivery| is_known(&delivery.receiver))
            .filter_map(|delivery| delivery.state.claimable_at())
            .min()
    }

    /// Gives up old deliveries, and removes old ones that are over.
    fn clean_up(&mut self, now: u64) {
        for delivery in &mut self.deliveries {
            let is_old = now.saturating_sub(delivery.created_at) >= GIVEN_UP_AFTER;
            if is_old && !delivery.state.is_final() {
                delivery.state = DeliveryState::GivenUp(now);
            }
        }
        self.deliveries.retain(|delivery| match delivery.state {
            DeliveryState::Due(_) | DeliveryState::Claimed(_) => true,
            DeliveryState::Delivered(at) | DeliveryState::GivenUp(at) => {
                now.saturating_sub(at) < LISTED
            }
        });
        let over = self.deliveries.iter().filter(|delivery| delivery.state.is_final()).count();
        let mut excess = over.saturating_sub(MOST_OVER);
        self.deliveries.retain(|delivery| {
            if excess > 0 && delivery.state.is_final() {
                excess -= 1;
                return false;
            }
            true
        });
    }
}

/// Pause after a failed attempt: 5 seconds, 10, 20 … up to an hour.
fn pause_after(attempts: u32) -> u64 {
    let doublings = attempts.saturating_sub(1).min(30);
    FIRST_PAUSE.saturating_mul(1 << doublings).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::notify::{Notification, NotifiedJob, Occasion, Receiver};

    fn delivery(id: &str, now: u64) -> Delivery {
        Delivery {
            id: id.to_owned(),
            receiver: Receiver::Target("ops".to_owned()),
            message: Notification {
                occasion: Occasion::Ended,
                at: now,
                job: NotifiedJob::default(),
            },
            created_at: now,
            attempts: 0,
            state: DeliveryState::Due(now),
            last_error: None,
        }
    }

    fn is_any(_: &Receiver) -> bool {
        true
    }

    fn outbox(now: u64) -> Outbox {
        let mut outbox = Outbox::default();
        assert!(outbox.add(delivery("a", now), now));
        outbox
    }

    #[test]
    fn a_delivery_is_claimed_by_one_process_at_a_time() {
        let mut outbox = outbox(0);

        assert_eq!(outbox.claim(0, |_| false), None);
        assert_eq!(outbox.claim(0, is_any).unwrap().id, "a");
        assert_eq!(outbox.claim(CLAIM - 1, is_any), None);
        // The claimant has died.
        let again = outbox.claim(CLAIM, is_any).unwrap();
        assert_eq!((again.id.as_str(), again.attempts), ("a", 2));
    }

    #[test]
    fn a_receiver_that_hangs_does_not_stop_the_others() {
        let mut outbox = Outbox::default();
        for id in ["a", "b", "c"] {
            assert!(outbox.add(delivery(id, 0), 0));
        }
        let other = Delivery {
            receiver: Receiver::Target("other".to_owned()),
            ..delivery("other", 1)
        };
        assert!(outbox.add(other, 1));

        let claimed: Vec<String> = std::iter::from_fn(|| outbox.claim(1, is_any))
            .map(|claimed| claimed.id)
            .collect();

        assert_eq!(claimed, ["a", "b", "other"]);
    }

    #[test]
    fn the_same_message_is_added_once() {
        let mut outbox = outbox(0);

        assert!(outbox.add(delivery("a", 5), 5));

        assert_eq!(outbox.deliveries().len(), 1);
    }

    #[test]
    fn pauses_grow_until_a_delivery_is_given_up_after_a_day() {
        let mut outbox = outbox(0);
        let mut now = 0;
        let mut pauses = Vec::new();
        while let Some(next) = outbox.next_at(is_any) {
            pauses.push(next - now);
            now = next;
            let Some(claimed) = outbox.claim(now, is_any) else { break };
            outbox.finish(&claimed, DeliveryAttempt::Failed("refused".to_owned()), now);
        }

        assert_eq!(pauses[..4], [0, 5_000, 10_000, 20_000]);
        assert_eq!(pauses.iter().max(), Some(&LONGEST_PAUSE));
        assert!(
            matches!(outbox.deliveries()[0].state, DeliveryState::GivenUp(at) if at >= GIVEN_UP_AFTER)
        );
        assert_eq!(
            outbox.deliveries()[0].last_error.as_deref(),
            Some("refused")
        );
    }

    #[test]
    fn a_late_answer_to_an_old_attempt_changes_nothing() {
        let mut outbox = outbox(0);
        let first = outbox.claim(0, is_any).unwrap();
        let second = outbox.claim(CLAIM, is_any).unwrap();
        outbox.finish(&second, DeliveryAttempt::Accepted, CLAIM + 1);

        outbox.finish(
            &first,
            DeliveryAttempt::Failed("too slow".to_owned()),
            CLAIM + 2,
        );

        assert_eq!(
            outbox.deliveries()[0].state,
            DeliveryState::Delivered(CLAIM + 1)
        );
    }

    #[test]
    fn too_many_are_counted_and_finished_ones_make_room() {
        let mut outbox = Outbox::default();
        for number in 0..MOST_OF_RECEIVER {
            assert!(outbox.add(delivery(&number.to_string(), 0), 0));
        }
        assert!(!outbox.add(delivery("more", 0), 0));
        assert_eq!(outbox.dropped(), 1);
        let other = Delivery {
            receiver: Receiver::Target("other".to_owned()),
            ..delivery("other", 0)
        };
        assert!(outbox.add(other, 0));

        for _ in 0..=MOST_OF_RECEIVER {
            let claimed = outbox.claim(0, is_any).unwrap();
            outbox.finish(&claimed, DeliveryAttempt::Accepted, 0);
        }

        assert_eq!(outbox.deliveries().len(), MOST_OVER);
        assert!(outbox.add(delivery("more", 0), 0));
    }
}
