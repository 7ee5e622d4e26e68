//! Reads that are repeated within a minute, as by a client that polls: the audit log has the first one, and then their
//! number.

use std::collections::HashMap;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use sshjobs_policy::audit::{Decided, Event, Repeated};

/// Reads of the last minute.
#[derive(Debug, Default)]
pub(super) struct RepeatedReads {
    /// By the decision, as JSON.
    reads: HashMap<String, CountedReads>,
}

#[derive(Debug)]
struct CountedReads {
    first: Decided,
    began: Instant,
    since: SystemTime,
    /// Calls after the first one.
    repetitions: u64,
}

/// Time in which calls count as repetitions of the first one.
const MINUTE: Duration = Duration::from_secs(60);
/// Maximum different reads that are counted. More are recorded one by one.
const MOST: usize = 4096;

impl RepeatedReads {
    /// Takes a read. Returns the events to record: the read itself, unless it repeats another, and the numbers of those
    /// whose minute is over.
    pub(super) fn take(&mut self, decided: Decided) -> Vec<Event> {
        let mut events = self.counted(|counted| counted.began.elapsed() >= MINUTE);
        let key = serde_json::to_string(&decided).expect("a decision is JSON");
        if let Some(known) = self.reads.get_mut(&key) {
            known.repetitions += 1;
            return events;
        }
        events.push(Event::Decision(Box::new(decided.clone())));
        if self.reads.len() < MOST {
            let counted = CountedReads {
                first: decided,
                began: Instant::now(),
                since: SystemTime::now(),
                repetitions: 0,
            };
            self.reads.insert(key, counted);
        }
        events
    }

    /// The numbers of all that were counted so far.
    pub(super) fn take_all(&mut self) -> Vec<Event> {
        self.counted(|_| true)
    }

    fn counted(&mut self, is_over: impl Fn(&CountedReads) -> bool) -> Vec<Event> {
        let over = self.reads.extract_if(|_, counted| is_over(counted));
        let mut over: Vec<CountedReads> = over
            .map(|(_, counted)| counted)
            .filter(|counted| counted.repetitions > 0)
            .collect();
        over.sort_by_key(|counted| counted.since);
        over.into_iter().map(CountedReads::into_event).collect()
    }
}

impl CountedReads {
    fn into_event(self) -> Event {
        let Self {
            first,
            since,
            repetitions,
            began: _,
        } = self;
        Event::Repeated(Box::new(Repeated {
            caller: first.caller,
            address: first.address,
            verb: first.verb,
            host: first.host,
            machine: first.machine,
            job: first.job,
            path: first.path,
            calls: repetitions,
            since: humantime::format_rfc3339_millis(since).to_string(),
        }))
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    fn tail(caller: &str, job: &str) -> Decided {
        Decided {
            caller: caller.to_owned(),
            verb: "tail".to_owned(),
            job: Some(job.to_owned()),
            allowed: true,
            ..Decided::default()
        }
    }

    /// The events in words: the caller and job of a read, or the number of repetitions.
    fn told(events: Vec<Event>) -> Vec<String> {
        let told = events.into_iter().map(|event| {
            if let Event::Repeated(repeated) = event {
                let job = repeated.job.unwrap_or_default();
                return format!("{} {job}: {}", repeated.caller, repeated.calls);
            }
            let Event::Decision(decided) = event else { panic!("{event:?}") };
            format!("{} {}", decided.caller, decided.job.unwrap_or_default())
        });
        told.collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_polls_has_two_lines_a_minute() {
        let mut reads = RepeatedReads::default();
        assert_eq!(told(reads.take(tail("ann", "a"))), ["ann a"]);
        for _ in 0..100 {
            assert!(reads.take(tail("ann", "a")).is_empty());
        }
        assert_eq!(told(reads.take(tail("ann", "b"))), ["ann b"]);
        assert_eq!(told(reads.take(tail("bob", "a"))), ["bob a"]);

        advance(MINUTE).await;
        assert_eq!(told(reads.take(tail("ann", "a"))), ["ann a: 100", "ann a"]);
        assert!(reads.take(tail("ann", "a")).is_empty());

        assert_eq!(told(reads.take_all()), ["ann a: 1"]);
        assert!(reads.take_all().is_empty());
    }

    #[test]
    fn reads_beyond_a_limit_are_recorded_one_by_one() {
        let mut reads = RepeatedReads::default();
        for number in 0..MOST {
            reads.take(tail("ann", &number.to_string()));
        }
        for _ in 0..2 {
            assert_eq!(told(reads.take(tail("ann", "more"))), ["ann more"]);
        }
    }
}
