//! Stdin of a fleet.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tokio::time::timeout;

use crate::runner::state::{JobStdin, RunnerState, WriteError};
use sshjobs_job::{Controls, FarEndError, Job, Member, MemberProgress, Signal};
use sshjobs_output::TerminalSize;

/// The stdin of a fleet. Data is written to every running member. A member that does not read in
/// time is skipped.
pub(crate) struct FleetControls {
    // Weak, because the registry of `RunnerState` holds this as part of the fleet's stdin.
    pub(crate) shared: Weak<RunnerState>,
    pub(crate) job: Arc<Job>,
}

/// Time limit for one member to accept the data.
const MEMBER_TAKES: Duration = Duration::from_secs(10);

impl FleetControls {
    fn has_running_members(&self) -> bool {
        let members = self.job.fleet.iter().flat_map(|fleet| fleet.members());
        members.into_iter().any(|member| is_running(&member))
    }

    /// The stdins of the running members.
    async fn stdins(&self) -> Vec<Arc<JobStdin>> {
        let Some(shared) = self.shared.upgrade() else { return Vec::new() };
        let Some(fleet) = &self.job.fleet else { return Vec::new() };
        // A process that has just taken over the fleet takes over its members one by one.
        let taking_over = fleet.wait_for_members(|members| {
            let mut running = members.iter().filter(|member| is_running(member));
            running.all(|member| stdin_of(&shared, member).is_some())
        });
        drop(timeout(MEMBER_TAKES, taking_over).await);
        let members = fleet.members();
        let running = members.iter().filter(|member| is_running(member));
        running.filter_map(|member| stdin_of(&shared, member)).collect()
    }
}

fn is_running(member: &Member) -> bool {
    matches!(member.progress, MemberProgress::Started { .. })
}

fn stdin_of(shared: &RunnerState, member: &Member) -> Option<Arc<JobStdin>> {
    shared.registry().stdin(member.job.as_ref()?)
}

impl Controls for FleetControls {
    fn write<'a>(&'a self, data: &'a [u8]) -> BoxFuture<'a, Result<usize, FarEndError>> {
        async {
            // Copied, so that no lock is held while members accept the data.
            let stdins = self.stdins().await;
            // Here, so that exactly the members that get the data hide its secrets.
            for secret in self.job.hidden_secrets() {
                stdins.iter().for_each(|stdin| stdin.job().hide_secret(&secret));
            }
            let written =
                join_all(stdins.iter().map(|stdin| stdin.write(data, MEMBER_TAKES))).await;
            for error in written.iter().filter_map(|written| written.as_ref().err()) {
                tracing::warn!(job = %self.job.id, %error, "a member was not written to");
            }
            // Without a running member the data is dropped: later members do not get it.
            let is_taken = written.iter().any(Result::is_ok) || !self.has_running_members();
            if is_taken {
                // All of it: a retry would repeat it for members that already have it.
                Ok(data.len())
            } else {
                Err(FarEndError::TimedOut(MEMBER_TAKES))
            }
        }
        .boxed()
    }

    fn eof(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
        async {
            let stdins = self.stdins().await;
            for ended in join_all(stdins.iter().map(|stdin| stdin.close(MEMBER_TAKES))).await {
                if let Err(error @ (WriteError::Backpressure { .. } | WriteError::FarEnd(_))) =
                    ended
                {
                    tracing::warn!(job = %self.job.id, %error, "a member's stdin was not ended");
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn signal(&self, _signal: Signal) -> BoxFuture<'_, Result<(), FarEndError>> {
        // `Runner::signal_members` signals them one by one.
        async { Ok(()) }.boxed()
    }

    fn resize(&self, _size: TerminalSize) -> BoxFuture<'_, Result<(), FarEndError>> {
        async { Err(FarEndError::Unsupported("has no terminal")) }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
        // Each member closes its own far end.
        async { Ok(()) }.boxed()
    }

    fn outlives_us(&self) -> bool {
        self.job.spec.durable
    }
}
