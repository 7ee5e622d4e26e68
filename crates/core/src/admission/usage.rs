//! Counts the jobs and starts of each caller, for the limits of rules.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use tokio::time::Instant;

use super::refusal::PolicyLimit;
use sshjobs_base::lock::lock;
use sshjobs_job::{Caller, Job};
use sshjobs_policy::RuleLimits;

/// Jobs and starts by rule and caller, of this process.
#[derive(Default)]
pub(super) struct RuleUsage(Mutex<HashMap<UsageKey, Counts>>);

/// A rule and a caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct UsageKey {
    pub(super) rule: String,
    pub(super) caller: Caller,
}

#[derive(Default)]
struct Counts {
    /// Times of the starts in the last minute, oldest first.
    starts: VecDeque<Instant>,
    running: Vec<RunningJob>,
    /// Jobs that are being started.
    reserved: u32,
}

/// A job that was started, until it has ended.
struct RunningJob {
    job: Weak<Job>,
    idempotency_key: Option<String>,
}

/// Room for a job that is being started. Dropping it gives the room back.
pub(super) struct LimitReservation {
    usage: Arc<RuleUsage>,
    key: UsageKey,
    idempotency_key: Option<String>,
    /// Whether a running job has the idempotency key. Then nothing new is started or counted.
    is_repetition: bool,
}

/// Number of rules and callers that are counted before idle ones are forgotten.
const MOST_KEYS: usize = 4096;
const MINUTE: Duration = Duration::from_secs(60);

impl RuleUsage {
    /// Counts a start, and reserves room for its job, unless a running job has the same idempotency key:
    /// then the start only returns that job.
    ///
    /// # Errors
    /// The limit that it would exceed. Then nothing is counted.
    pub(super) fn reserve(
        self: &Arc<Self>,
        key: UsageKey,
        idempotency_key: Option<&str>,
        limits: &RuleLimits,
    ) -> Result<LimitReservation, PolicyLimit> {
        let now = Instant::now();
        let mut all = lock(&self.0);
        if all.len() >= MOST_KEYS {
            all.retain(|_, counts| {
                counts.forget_old(now);
                counts.jobs() > 0 || !counts.starts.is_empty()
            });
        }
        let counts = all.entry(key.clone()).or_default();
        counts.forget_old(now);
        let is_repetition = counts.has_job_of(idempotency_key);
        if !is_repetition {
            counts.check(limits)?;
            counts.starts.push_back(now);
            counts.reserved += 1;
        }
        Ok(LimitReservation {
            usage: Arc::clone(self),
            key,
            idempotency_key: idempotency_key.map(str::to_owned),
            is_repetition,
        })
    }
}

impl LimitReservation {
    /// Counts a job for as long as it runs. That includes a job that a repetition has started because the
    /// earlier one was forgotten meanwhile.
    pub(super) fn note_job(&self, job: &Arc<Job>) {
        let mut all = lock(&self.usage.0);
        if let Some(counts) = all.get_mut(&self.key)
            && !counts.has(job)
        {
            if self.is_repetition {
                counts.starts.push_back(Instant::now());
            }
            counts.running.push(RunningJob {
                job: Arc::downgrade(job),
                idempotency_key: self.idempotency_key.clone(),
            });
        }
    }
}

impl Drop for LimitReservation {
    fn drop(&mut self) {
        if self.is_repetition {
            return;
        }
        let mut all = lock(&self.usage.0);
        if let Some(counts) = all.get_mut(&self.key) {
            counts.reserved = counts.reserved.saturating_sub(1);
        }
    }
}

impl Counts {
    /// Fails with the limit that one more start would exceed.
    fn check(&self, limits: &RuleLimits) -> Result<(), PolicyLimit> {
        if let Some(most) = limits.jobs
            && self.jobs() >= most
        {
            return Err(PolicyLimit::Jobs(most));
        }
        if let Some(most) = limits.starts_per_minute
            && self.starts.len() >= usize::try_from(most).unwrap_or(usize::MAX)
        {
            return Err(PolicyLimit::StartsPerMinute(most));
        }
        Ok(())
    }

    fn forget_old(&mut self, now: Instant) {
        while self.starts.front().is_some_and(|start| now.duration_since(*start) >= MINUTE) {
            self.starts.pop_front();
        }
        self.running
            .retain(|running| running.job.upgrade().is_some_and(|job| !job.is_over()));
    }

    fn has(&self, job: &Arc<Job>) -> bool {
        self.running.iter().any(|running| running.job.as_ptr() == Arc::as_ptr(job))
    }

    fn has_job_of(&self, idempotency_key: Option<&str>) -> bool {
        let mut keys = self.running.iter().filter_map(|job| job.idempotency_key.as_deref());
        idempotency_key.is_some_and(|key| keys.any(|used| used == key))
    }

    fn jobs(&self) -> u32 {
        let running = u32::try_from(self.running.len()).unwrap_or(u32::MAX);
        running.saturating_add(self.reserved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sshjobs_job::Draft;
    use sshjobs_output::RingLimits;

    fn key() -> UsageKey {
        UsageKey {
            rule: "deploy".to_owned(),
            caller: Caller::local(),
        }
    }

    fn job() -> Arc<Job> {
        let spec = Draft::new("web1", "make").try_into().unwrap();
        let ring = RingLimits {
            lines: 10,
            bytes: 1000,
            line_bytes: 100,
        };
        Arc::new(Job::new(Caller::local(), spec, ring))
    }

    #[tokio::test(start_paused = true)]
    async fn starts_are_counted_for_a_minute() {
        let usage = Arc::new(RuleUsage::default());
        let limits = RuleLimits {
            starts_per_minute: Some(2),
            ..RuleLimits::default()
        };
        for _ in 0..2 {
            assert!(usage.reserve(key(), None, &limits).is_ok());
        }
        assert_eq!(
            usage.reserve(key(), None, &limits).err(),
            Some(PolicyLimit::StartsPerMinute(2))
        );

        tokio::time::advance(MINUTE).await;
        assert!(usage.reserve(key(), None, &limits).is_ok());
    }

    #[test]
    fn a_job_counts_from_its_start_until_it_is_gone() {
        let usage = Arc::new(RuleUsage::default());
        let limits = RuleLimits {
            jobs: Some(1),
            ..RuleLimits::default()
        };
        let starting = usage.reserve(key(), None, &limits).ok().unwrap();
        assert_eq!(
            usage.reserve(key(), None, &limits).err(),
            Some(PolicyLimit::Jobs(1)),
            "it starts"
        );
        let other_caller = UsageKey {
            caller: Caller::new("other"),
            ..key()
        };
        assert!(usage.reserve(other_caller, None, &limits).is_ok());

        let job = job();
        starting.note_job(&job);
        drop(starting);
        assert_eq!(
            usage.reserve(key(), None, &limits).err(),
            Some(PolicyLimit::Jobs(1)),
            "it runs"
        );

        drop(job);
        assert!(usage.reserve(key(), None, &limits).is_ok());
    }

    #[test]
    fn a_repeated_start_is_not_counted_while_its_job_runs() {
        let usage = Arc::new(RuleUsage::default());
        let limits = RuleLimits {
            jobs: Some(2),
            ..RuleLimits::default()
        };
        let job = job();
        for _ in 0..3 {
            let start = usage.reserve(key(), Some("once"), &limits).ok().unwrap();
            start.note_job(&job);
        }

        assert!(usage.reserve(key(), Some("another"), &limits).is_ok());
    }
}
