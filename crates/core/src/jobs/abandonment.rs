//! Ends durable jobs for which no caller has asked in a long time: `abandoned` of `[defaults]`.
//!
//! A call that names a job counts, and so does each one that still reads it. Lists and notifications do not:
//! nobody has to look at them. Whoever is told of the job's end is told before that it will come.

use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::time::sleep;

use super::attention::{Due, millis, name_of, notice, pause};
use super::jobs::Jobs;
use crate::jobs::{Signal, timestamp_of};
use crate::runner::Permitted;
use sshjobs_job::notify::Occasion;
use sshjobs_job::{Job, JobId};

/// Time from TERM to KILL.
const GRACE: Duration = Duration::from_secs(10);

impl Jobs {
    /// Ends the durable jobs of this process for which no caller has asked for the time that the
    /// configuration names, until it is dropped. Never returns.
    pub async fn end_abandoned(&self) -> Infallible {
        let attention = &self.door.inside.attention;
        let Some(limit) = attention.limit else { return pending().await };
        loop {
            sleep(pause(limit)).await;
            let calls = match attention.calls.read().await {
                Ok(calls) => calls,
                Err(error) => {
                    // A job that is still wanted must not end because that can't be read.
                    tracing::warn!(%error, "abandoned jobs can't be told from others");
                    continue;
                }
            };
            let jobs = self.door.runner().recorded_durable_jobs();
            for job in &jobs {
                let name = name_of(&job.id, job.spec.member_of.as_ref());
                let last = calls.0.get(name.as_str()).copied().unwrap_or_default();
                let now = timestamp_of(SystemTime::now());
                match last.due(timestamp_of(job.status().started_at), now, limit) {
                    Due::Nothing => {}
                    Due::Notice => self.announce_end(job, name, limit).await,
                    Due::End => self.end_abandoned_job(job, limit).await,
                }
            }
            self.drop_old_calls(limit).await;
        }
    }

    /// Tells those who are told of a job's end that it will come.
    async fn announce_end(&self, job: &Arc<Job>, name: &JobId, limit: Duration) {
        let now = timestamp_of(SystemTime::now());
        let key = name.as_str().to_owned();
        let told = self.door.inside.attention.calls.change(move |calls| {
            calls.0.entry(key.clone()).or_default().told_at = Some(now);
        });
        if let Err(error) = told.await {
            tracing::warn!(%error, "the end of an abandoned job can't be announced");
            return;
        }
        let ends_in = notice(limit);
        tracing::warn!(job = %job.id, ?ends_in, "nobody has asked for a durable job; it will be ended");
        let seconds = ends_in.as_secs();
        self.notifier().note_coming_end(job, Occasion::Abandoned { seconds });
    }

    async fn end_abandoned_job(&self, job: &Arc<Job>, limit: Duration) {
        tracing::warn!(job = %job.id, ?limit, "a durable job is ended: nobody has asked for it");
        job.note_abandoned();
        let permitted = Permitted::for_abandonment(job);
        let ended = self.door.runner().signal(permitted, Signal::TERM, Some(GRACE)).await;
        if let Err(error) = ended {
            tracing::warn!(job = %job.id, %error, "an abandoned job could not be ended");
        }
    }

    /// Forgets calls so old that they change nothing: without a note a job counts from its start.
    async fn drop_old_calls(&self, limit: Duration) {
        let oldest = timestamp_of(SystemTime::now()).saturating_sub(millis(limit * 3));
        let dropped = self.door.inside.attention.calls.change(move |calls| {
            calls.0.retain(|_, call| call.at.max(call.told_at) >= Some(oldest));
        });
        if let Err(error) = dropped.await {
            tracing::debug!(%error, "old notes of calls stay");
        }
    }
}
