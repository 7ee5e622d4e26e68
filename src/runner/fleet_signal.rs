use std::time::Duration;

use futures_util::StreamExt;
use futures_util::future::{BoxFuture, FutureExt};
use futures_util::stream::FuturesUnordered;

use super::signal_tree::{DeliveredVia, SignalReport};
use super::{Lookup, Runner, SignalError};
use crate::job::{Fleet, JobId, Scope, Signal};

/// Members that are signalled at a time.
const AT_A_TIME: usize = 64;

impl Runner {
    /// Signals every member of a fleet that runs. With a signal that ends a command no further member starts.
    ///
    /// # Errors
    /// When no member could be signalled: why the first one could not.
    pub(super) fn signal_members<'a>(
        &'a self,
        fleet: &'a Fleet,
        signal: Signal,
        grace: Option<Duration>,
    ) -> BoxFuture<'a, Result<SignalReport, SignalError>> {
        async move {
            if signal.ends() {
                fleet.stop(signal);
            }
            let running: Vec<JobId> = {
                let members = fleet.members();
                let running = members.iter().filter(|member| member.outcome.is_none());
                running.filter_map(|member| member.job.clone()).collect()
            };
            let (mut waiting, mut signalled, mut reports) =
                (running.into_iter(), FuturesUnordered::new(), Vec::new());
            loop {
                while signalled.len() < AT_A_TIME
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
            Lookup::Found(member) => self.signal(&member, signal, grace).await,
            Lookup::Expired(_) | Lookup::Unknown => Err(SignalError::JobEnded),
        }
    }
}

/// What came of all: dead is a fleet whose members all are.
fn merged(reports: Vec<Result<SignalReport, SignalError>>) -> Result<SignalReport, SignalError> {
    let nothing =
        SignalReport { delivered_via: DeliveredVia::Nothing, confirmed_dead: true, unverified: None };
    let (mut merged, mut reached, mut failed) = (nothing, 0, None);
    for report in reports {
        match report {
            Ok(report) => {
                reached += 1;
                if report.delivered_via != DeliveredVia::Nothing {
                    merged.delivered_via = report.delivered_via;
                }
                merged.confirmed_dead &= report.confirmed_dead;
                merged.unverified = merged.unverified.or(report.unverified);
            }
            Err(SignalError::JobEnded) => {}
            Err(error) => {
                merged.confirmed_dead = false;
                failed.get_or_insert(error);
            }
        }
    }
    match failed {
        Some(error) if reached == 0 => Err(error),
        _ => Ok(merged),
    }
}
