//! Ends durable jobs that no call has named in a long time: `abandoned` of `[defaults]`.
//!
//! A call that names a job counts, for as long as it takes. Lists and notifications do not: they arrive
//! unasked. Receivers of the job's end get a notice before it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use tokio::time::sleep;

use super::attention::{LastCall, Step, millis, name_of, notice_period, pause};
use super::jobs::Jobs;
use crate::jobs::{Signal, Timestamp, timestamp_of};
use crate::runner::Permitted;
use sshjobs_job::notify::Occasion;
use sshjobs_job::{Job, JobId};

/// Time from TERM to KILL.
const GRACE: Duration = Duration::from_secs(10);

/// A durable job, or those members of a durable fleet that this process records.
struct Watched {
    jobs: Vec<Arc<Job>>,
    /// Its start; of a fleet that of the member that started last.
    started_at: Timestamp,
}

impl Watched {
    /// The job that stands for all: the fleet itself, if this process runs it.
    fn main(&self, name: &JobId) -> Option<&Arc<Job>> {
        self.jobs.iter().find(|job| job.id == *name).or(self.jobs.first())
    }

    /// The jobs to end: a fleet ends its members.
    fn to_end(&self, name: &JobId) -> Vec<&Arc<Job>> {
        match self.jobs.iter().find(|job| job.id == *name) {
            Some(fleet) => vec![fleet],
            None => self.jobs.iter().collect(),
        }
    }
}

impl Jobs {
    /// Ends the durable jobs of this process that no call has named for the time that the configuration
    /// sets, until it is dropped. Never returns.
    pub async fn end_abandoned(&self) -> Infallible {
        let attention = &self.door.inside.attention;
        let Some(limit) = attention.limit else { return pending().await };
        loop {
            sleep(pause(limit)).await;
            // Other processes note their calls because of it.
            let told = attention.calls.change(move |calls| {
                calls.limit_ms = Some(millis(limit));
                calls.clone()
            });
            let calls = match told.await {
                Ok(calls) => calls,
                Err(error) => {
                    // A job that calls still name must not end because the notes can't be read.
                    tracing::warn!(%error, "the last calls of durable jobs can't be read; none is ended");
                    continue;
                }
            };
            let watched = self.watched_for_abandonment();
            let steps = watched.iter().map(async |(name, watched)| {
                let last = calls.calls.get(name.as_str()).copied().unwrap_or_default();
                let now = timestamp_of(SystemTime::now());
                match last.next_step(watched.started_at, now, limit) {
                    Step::Wait => {}
                    Step::Notice => self.announce_end(name, watched, limit).await,
                    Step::End => self.end_if_abandoned(name, watched, limit).await,
                }
            });
            join_all(steps).await;
            self.drop_old_calls(limit).await;
        }
    }

    fn watched_for_abandonment(&self) -> BTreeMap<JobId, Watched> {
        let mut all: BTreeMap<JobId, Watched> = BTreeMap::new();
        for job in self.door.runner().recorded_durable_jobs() {
            let started_at = timestamp_of(job.status().started_at);
            let name = name_of(&job.id, job.spec.member_of.as_ref()).clone();
            let watched = all.entry(name).or_insert(Watched {
                jobs: Vec::new(),
                started_at,
            });
            watched.started_at = watched.started_at.max(started_at);
            watched.jobs.push(job);
        }
        all
    }

    /// Announces a job's end to the receivers of its end, unless a call came meanwhile.
    async fn announce_end(&self, name: &JobId, watched: &Watched, limit: Duration) {
        let (key, started_at) = (name.as_str().to_owned(), watched.started_at);
        let now = timestamp_of(SystemTime::now());
        let noticed = self.door.inside.attention.calls.change(move |calls| {
            let call = calls.calls.entry(key.clone()).or_default();
            let is_due = call.next_step(started_at, now, limit) == Step::Notice;
            if is_due {
                call.noticed_at = Some(now);
            }
            is_due
        });
        match noticed.await {
            Ok(true) => {}
            Ok(false) => return,
            Err(error) => {
                tracing::warn!(%error, "the end of an abandoned job can't be announced");
                return;
            }
        }
        let ends_in = notice_period(limit);
        tracing::warn!(job = %name, ?ends_in, "no call has named a durable job; it will be ended");
        if let Some(job) = watched.main(name) {
            let seconds = ends_in.as_secs();
            self.notifier().note_coming_end(job, Occasion::Abandoned { seconds });
        }
    }

    /// Ends a job, unless a call came meanwhile.
    async fn end_if_abandoned(&self, name: &JobId, watched: &Watched, limit: Duration) {
        let last = match self.door.inside.attention.calls.read().await {
            Ok(calls) => calls.calls.get(name.as_str()).copied().unwrap_or_default(),
            Err(error) => {
                tracing::warn!(%error, "an abandoned job is not ended yet");
                return;
            }
        };
        let now = timestamp_of(SystemTime::now());
        if last.next_step(watched.started_at, now, limit) != Step::End {
            return;
        }
        tracing::warn!(job = %name, ?limit, "a durable job is ended: no call has named it");
        let ends = watched.to_end(name).into_iter().map(async |job| {
            watched.jobs.iter().for_each(|job| job.set_abandoned(true));
            let permitted = Permitted::for_abandonment(job);
            let ended = self.door.runner().signal(permitted, Signal::TERM, Some(GRACE)).await;
            if let Err(error) = ended {
                // It runs on, and its end will have another cause.
                watched.jobs.iter().for_each(|job| job.set_abandoned(false));
                tracing::warn!(job = %job.id, %error, "an abandoned job could not be ended");
            }
        });
        join_all(ends).await;
    }

    /// Forgets old calls: without one a job counts from its start, which is older.
    async fn drop_old_calls(&self, limit: Duration) {
        let age = millis(limit).saturating_mul(3);
        let oldest = timestamp_of(SystemTime::now()).saturating_sub(age);
        let dropped = self.door.inside.attention.calls.change(move |calls| {
            let is_old = |call: &LastCall| call.at.max(call.noticed_at) < Some(oldest);
            calls.calls.retain(|_, call| !is_old(call));
        });
        if let Err(error) = dropped.await {
            tracing::debug!(%error, "old notes of calls stay");
        }
    }
}
