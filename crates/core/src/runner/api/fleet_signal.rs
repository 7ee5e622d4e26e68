//! Signals the members of a fleet, many at a time, and merges their reports.

use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;

use super::runner::Runner;
use crate::runner::seen_job::Permitted;
use crate::runner::signal::{MEMBERS_AT_A_TIME, SignalReport, merged};
use crate::runner::state::{Lookup, SignalError};
use sshjobs_job::{Fleet, Job, JobId, Scope, Signal};

impl Runner {
    /// Signals every running member of a fleet or, if the fleet has ended, what its members left
    /// on their hosts. A signal that ends a command also keeps further members from starting.
    ///
    /// # Errors
    /// The first member's error, if no member could be signalled.
    pub(crate) fn signal_members<'a>(
        &'a self,
        job: &'a Job,
        fleet: &'a Fleet,
        signal: Signal,
        grace: Option<Duration>,
    ) -> BoxFuture<'a, Result<SignalReport, SignalError>> {
        // Boxed, because `signal` calls this for a fleet, and this calls `signal` for members.
        async move {
            // First: a member that starts after the list is made gets this signal
            // from the roll-out.
            if signal.ends() {
                fleet.stop(signal);
            }
            let is_over = job.is_over();
            let to_signal: Vec<JobId> = {
                let members = fleet.lock_members();
                let signalled =
                    members.iter().filter(|member| is_over || member.result().is_none());
                signalled.filter_map(|member| member.job.clone()).collect()
            };
            let mut waiting = to_signal.into_iter();
            let mut signalled = FuturesUnordered::new();
            let mut reports = Vec::new();
            loop {
                while signalled.len() < MEMBERS_AT_A_TIME
                    && let Some(id) = waiting.next()
                {
                    signalled.push(self.signal_member(id, signal, grace));
                }
                let Some(report) = signalled.next().await else { return merged(reports) };
                reports.push(report);
            }
        }
        .boxed()
    }

    async fn signal_member(
        &self,
        id: JobId,
        signal: Signal,
        grace: Option<Duration>,
    ) -> Result<SignalReport, SignalError> {
        match self.lookup(&Scope::All, &id).await {
            Lookup::Found(member) => self.signal(Permitted::new(&member), signal, grace).await,
            Lookup::Expired(_) | Lookup::Unknown => Err(SignalError::JobEnded),
            Lookup::Unreadable(error) => Err(SignalError::Store(error)),
        }
    }
}
