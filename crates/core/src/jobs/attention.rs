//! Notes for which durable jobs callers ask, so that others can be told from them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

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

/// When callers last asked for durable jobs. Processes with the same state share it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub(super) struct LastCalls(pub(super) BTreeMap<String, LastCall>);

/// The last call for one job, or for its fleet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LastCall {
    /// `None` if none was made since its start.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) at: Option<Timestamp>,
    /// When its owner was told that it will be ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) told_at: Option<Timestamp>,
}

/// What is due for a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    Nothing,
    Notice,
    End,
}

/// Notes for which jobs callers ask.
pub(super) struct Attention {
    /// Time without a call after which a job is ended. `None`: jobs are not ended, and nothing is noted.
    pub(super) limit: Option<Duration>,
    pub(super) calls: SharedValue<LastCalls>,
    /// When this process has last noted a job.
    noted: Mutex<BTreeMap<JobId, Instant>>,
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
            calls: SharedValue::new("last calls", store),
            noted: Mutex::default(),
        }
    }

    /// Notes a call for a job.
    pub(super) async fn note(&self, job: &SeenJob) {
        let Some(limit) = self.limit else { return };
        if !job.spec().durable || job.is_over() {
            return;
        }
        self.note_call(name_of(job.id(), job.spec().member_of.as_ref()), limit).await;
    }

    /// Notes a call for a job now and again, as long as the result lives. `None` if that has no use.
    pub(super) fn during_call(self: &Arc<Self>, job: &SeenJob) -> Option<OngoingCall> {
        let limit = self.limit?;
        if !job.spec().durable || job.is_over() {
            return None;
        }
        let attention = Arc::clone(self);
        let name = name_of(job.id(), job.spec().member_of.as_ref()).clone();
        let mut noting = JoinSet::new();
        noting.spawn(async move {
            loop {
                sleep(pause(limit)).await;
                attention.note_call(&name, limit).await;
            }
        });
        Some(OngoingCall { _noting: noting })
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
            told_at: None,
        };
        let name = name.as_str().to_owned();
        let noting = self.calls.change(move |calls| calls.0.insert(name.clone(), call));
        if let Err(error) = noting.await {
            tracing::warn!(%error, "it can't be noted that a durable job is still wanted");
        }
    }
}

impl LastCall {
    pub(super) fn due(self, started_at: Timestamp, now: Timestamp, limit: Duration) -> Due {
        let quiet = now.saturating_sub(self.at.unwrap_or(0).max(started_at));
        let notice = millis(notice(limit));
        match self.told_at {
            None if quiet + notice >= millis(limit) => Due::Notice,
            // Never before the whole notice has passed: no process may have run at the time for it.
            Some(told_at) if quiet >= millis(limit) && now >= told_at + notice => Due::End,
            None | Some(_) => Due::Nothing,
        }
    }
}

/// The name under which calls for a job are noted: a call for a fleet is one for all of its members.
pub(super) fn name_of<'a>(job: &'a JobId, fleet: Option<&'a JobId>) -> &'a JobId {
    fleet.unwrap_or(job)
}

/// Time between the message and the end.
pub(super) fn notice(limit: Duration) -> Duration {
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
        let call = |at, told_at| LastCall { at, told_at };
        for (last, now, due) in [
            (call(None, None), 5 * DAY, Due::Nothing),
            (call(None, None), 6 * DAY, Due::Notice),
            (call(None, Some(6 * DAY)), 7 * DAY - 1, Due::Nothing),
            (call(None, Some(6 * DAY)), 7 * DAY, Due::End),
            (call(Some(3 * DAY), None), 8 * DAY, Due::Nothing),
            (call(Some(3 * DAY), None), 9 * DAY, Due::Notice),
            // No process ran while the notice was due.
            (call(None, None), 30 * DAY, Due::Notice),
            (call(None, Some(30 * DAY)), 30 * DAY + DAY / 2, Due::Nothing),
            (call(None, Some(30 * DAY)), 31 * DAY, Due::End),
        ] {
            assert_eq!(
                last.due(0, now, LIMIT),
                due,
                "{last:?} on day {}",
                now / DAY
            );
        }
    }
}
