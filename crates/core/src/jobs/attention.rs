//! Notes when a call last named each durable job, to find abandoned ones.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use crate::jobs::{Timestamp, timestamp_of};
use crate::runner::SeenJob;
use sshjobs_base::lock::lock;
use sshjobs_job::JobId;
use sshjobs_store::{SharedValue, Store, StoreError};

/// The longest time between the message and the end.
const LONGEST_NOTICE: Duration = Duration::from_secs(24 * 3600);
/// The longest time between two looks, and between two notes of the same job.
const LONGEST_PAUSE: Duration = Duration::from_secs(10 * 60);
const SHORTEST_PAUSE: Duration = Duration::from_millis(100);
/// Longest wait of a call until it is noted.
const BRIEFLY: Duration = Duration::from_millis(100);
/// Time between two reads of the limit that a server has stored.
const LIMIT_LOOK: Duration = Duration::from_secs(2);

/// The last calls for durable jobs. Processes with the same state share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct LastCalls {
    /// The time after which a server ends a job that no call has named, in milliseconds. `None` if none
    /// does.
    pub(super) limit_ms: Option<u64>,
    pub(super) calls: BTreeMap<String, LastCall>,
}

/// The last call for one job, or for its fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastCall {
    /// `None` if none was made since its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<Timestamp>,
    /// When the receivers of its end got the notice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) noticed_at: Option<Timestamp>,
}

/// The next step towards the end of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Wait,
    Notice,
    End,
}

/// Notes which jobs calls name.
pub(super) struct Attention {
    /// Time without a call after which this process ends a job. `None`: it ends none.
    pub(super) limit: Option<Duration>,
    pub(super) calls: SharedValue<LastCalls>,
    /// When this process has last noted a job.
    noted: Mutex<BTreeMap<JobId, Instant>>,
    /// The limit of any process, and when it was looked at.
    known_limit: Mutex<Option<(Instant, Option<Duration>)>>,
}

/// Counts as a call for a job as long as it lives.
pub(super) struct OngoingCall {
    /// The task that notes it, which ends with this value.
    _noting: JoinSet<()>,
}

impl Attention {
    pub(super) fn new(
        limit: Option<Duration>,
        store: Option<Result<Arc<dyn Store>, StoreError>>,
    ) -> Self {
        Self {
            limit,
            calls: SharedValue::new("calls", store),
            noted: Mutex::default(),
            known_limit: Mutex::default(),
        }
    }

    /// Notes a call for a job. Waits only briefly: a call must not depend on a store that does not answer.
    pub(super) async fn note(&self, job: &SeenJob) {
        if !job.spec().durable || job.is_over() {
            return;
        }
        let name = name_of(job.id(), job.spec().member_of.as_ref());
        let noting = async {
            if let Some(limit) = self.limit_of_any_process().await {
                self.note_call(name, limit).await;
            }
        };
        if timeout(BRIEFLY, noting).await.is_err() {
            // This call tries again while it lasts; so does the next one.
            lock(&self.noted).remove(name);
        }
    }

    /// Notes a call for a job now and again, as long as the result lives. `None` for a job that is not
    /// durable.
    pub(super) fn during_call(self: &Arc<Self>, job: &SeenJob) -> Option<OngoingCall> {
        if !job.spec().durable || job.is_over() {
            return None;
        }
        let attention = Arc::clone(self);
        let name = name_of(job.id(), job.spec().member_of.as_ref()).clone();
        let mut noting = JoinSet::new();
        noting.spawn(async move {
            loop {
                let limit = attention.limit_of_any_process().await;
                sleep(limit.map_or(LIMIT_LOOK, pause)).await;
                if let Some(limit) = limit {
                    attention.note_call(&name, limit).await;
                }
            }
        });
        Some(OngoingCall { _noting: noting })
    }

    /// The limit of this process, or of the server that ends jobs: another process notes its calls, too.
    async fn limit_of_any_process(&self) -> Option<Duration> {
        if self.limit.is_some() {
            return self.limit;
        }
        let known = *lock(&self.known_limit);
        if let Some((_, limit)) = known.filter(|(at, _)| at.elapsed() < LIMIT_LOOK) {
            return limit;
        }
        let last_known = known.and_then(|(_, limit)| limit);
        // Before the read: if the store does not answer, other calls do not ask it, too.
        *lock(&self.known_limit) = Some((Instant::now(), last_known));
        let limit = match self.calls.read().await {
            Ok(calls) => calls.limit_ms.map(Duration::from_millis),
            Err(error) => {
                tracing::debug!(%error, "it is not known whether a server ends abandoned jobs");
                last_known
            }
        };
        *lock(&self.known_limit) = Some((Instant::now(), limit));
        limit
    }

    async fn note_call(&self, name: &JobId, limit: Duration) {
        let now = Instant::now();
        {
            let mut noted = lock(&self.noted);
            noted.retain(|_, at| now.duration_since(*at) < pause(limit));
            if noted.contains_key(name) {
                return;
            }
            noted.insert(name.clone(), now);
        }
        let call = LastCall {
            at: Some(timestamp_of(SystemTime::now())),
            noticed_at: None,
        };
        let key = name.as_str().to_owned();
        let noting = self.calls.change(move |calls| calls.calls.insert(key.clone(), call));
        if let Err(error) = noting.await {
            // The next call tries again.
            lock(&self.noted).remove(name);
            tracing::warn!(%error, "can't store the last call of a durable job");
        }
    }
}

impl LastCall {
    pub(super) fn next_step(self, started_at: Timestamp, now: Timestamp, limit: Duration) -> Step {
        let quiet = now.saturating_sub(self.at.unwrap_or(0).max(started_at));
        let notice = millis(notice_period(limit));
        match self.noticed_at {
            None if quiet + notice >= millis(limit) => Step::Notice,
            // A whole notice period after the notice, which may have come late: no process ran when it was due.
            Some(noticed_at) if quiet >= millis(limit) && now >= noticed_at + notice => Step::End,
            None | Some(_) => Step::Wait,
        }
    }
}

/// The name under which calls for a job are noted: a call for a fleet is one for all of its members.
pub(super) fn name_of<'a>(job: &'a JobId, fleet: Option<&'a JobId>) -> &'a JobId {
    fleet.unwrap_or(job)
}

/// Time between the message and the end.
pub(super) fn notice_period(limit: Duration) -> Duration {
    (limit / 4).min(LONGEST_NOTICE)
}

/// Time between two looks.
pub(super) fn pause(limit: Duration) -> Duration {
    (limit / 20).clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
}

pub(super) fn millis(time: Duration) -> Timestamp {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: u64 = 24 * 3600 * 1000;
    const LIMIT: Duration = Duration::from_secs(7 * 24 * 3600);

    #[test]
    fn a_job_is_ended_after_a_notice_only_and_never_while_it_is_asked_for() {
        let call = |at, noticed_at| LastCall { at, noticed_at };
        for (last, now, due) in [
            (call(None, None), 5 * DAY, Step::Wait),
            (call(None, None), 6 * DAY, Step::Notice),
            (call(None, Some(6 * DAY)), 7 * DAY - 1, Step::Wait),
            (call(None, Some(6 * DAY)), 7 * DAY, Step::End),
            (call(Some(3 * DAY), None), 8 * DAY, Step::Wait),
            (call(Some(3 * DAY), None), 9 * DAY, Step::Notice),
            // No process ran while the notice was due.
            (call(None, None), 30 * DAY, Step::Notice),
            (call(None, Some(30 * DAY)), 30 * DAY + DAY / 2, Step::Wait),
            (call(None, Some(30 * DAY)), 31 * DAY, Step::End),
        ] {
            assert_eq!(
                last.next_step(0, now, LIMIT),
                due,
                "{last:?} on day {}",
                now / DAY
            );
        }
    }
}
