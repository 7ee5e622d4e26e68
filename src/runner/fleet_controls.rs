use std::sync::{Arc, Weak};
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};

use super::WriteError;
use super::shared::Shared;
use super::stdin::Stdin;
use crate::job::{Controls, FarEndError, Job, Signal};

/// The stdin of a fleet: what is written goes to every member that runs. A member that does not read is left behind after a while.
pub(super) struct FleetControls {
    pub(super) shared: Weak<Shared>,
    pub(super) job: Arc<Job>,
}

/// Time limit for one member to take what is written.
const MEMBER_TAKES: Duration = Duration::from_secs(10);

impl FleetControls {
    fn stdins(&self) -> Vec<Arc<Stdin>> {
        let (Some(shared), Some(fleet)) = (self.shared.upgrade(), &self.job.fleet) else { return Vec::new() };
        let registry = shared.registry();
        let members = fleet.members();
        let running = members.iter().filter(|member| member.outcome.is_none());
        running.filter_map(|member| registry.stdin(member.job.as_ref()?)).collect()
    }
}

impl Controls for FleetControls {
    fn write<'a>(&'a self, data: &'a [u8]) -> BoxFuture<'a, Result<usize, FarEndError>> {
        async {
            let stdins = self.stdins();
            let written = join_all(stdins.iter().map(|stdin| stdin.write(data, MEMBER_TAKES))).await;
            for error in written.iter().filter_map(|written| written.as_ref().err()) {
                tracing::warn!(job = %self.job.id, %error, "a member was not written to");
            }
            let is_taken = written.is_empty() || written.iter().any(Result::is_ok);
            if is_taken { Ok(data.len()) } else { Err(FarEndError::TimedOut(MEMBER_TAKES)) }
        }
        .boxed()
    }

    fn eof(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
        async {
            let stdins = self.stdins();
            for ended in join_all(stdins.iter().map(|stdin| stdin.close(MEMBER_TAKES))).await {
                if let Err(error @ (WriteError::Backpressure { .. } | WriteError::FarEnd(_))) = ended {
                    tracing::warn!(job = %self.job.id, %error, "a member's stdin was not ended");
                }
            }
            Ok(())
        }
        .boxed()
    }

    fn signal(&self, _signal: Signal) -> BoxFuture<'_, Result<(), FarEndError>> {
        // Members are signalled one by one.
        async { Ok(()) }.boxed()
    }

    fn resize(&self, _size: (u32, u32)) -> BoxFuture<'_, Result<(), FarEndError>> {
        async { Err(FarEndError::Unsupported("has no terminal")) }.boxed()
    }

    fn close(&self) -> BoxFuture<'_, Result<(), FarEndError>> {
        async { Ok(()) }.boxed()
    }

    fn outlives_us(&self) -> bool {
        self.job.spec.durable
    }
}
