//! A forward of a port or a socket.

use std::fmt;
use std::sync::Arc;

use sshjobs_core::jobs as core_jobs;
use sshjobs_core::jobs::{ForwardSpec, ForwardStatus};

/// A forward of a port or a socket through a host; see [`Host::forward`](crate::Host::forward). A cheap
/// handle: dropping the last one closes it with its streams.
#[derive(Clone)]
pub struct Forward {
    open: Arc<OpenForward>,
}

struct OpenForward {
    jobs: core_jobs::Jobs,
    status: ForwardStatus,
}

impl Forward {
    pub(crate) fn new(jobs: core_jobs::Jobs, status: ForwardStatus) -> Self {
        Self {
            open: Arc::new(OpenForward { jobs, status }),
        }
    }

    /// Its two ends, with the port that was chosen.
    pub fn spec(&self) -> &ForwardSpec {
        &self.open.status.spec
    }

    /// Closes it with its streams, also for other handles of it.
    pub fn close(&self) {
        self.open.close();
    }

    /// Waits until it is closed, for example by [`Jobs::shutdown`](crate::Jobs::shutdown).
    pub async fn closed(&self) {
        self.open.jobs.forward_closed(&self.open.status.id).await;
    }
}

impl OpenForward {
    fn close(&self) {
        // It may be closed already.
        self.jobs.close_forward(&self.status.id.to_string()).ok();
    }
}

impl Drop for OpenForward {
    fn drop(&mut self) {
        self.close();
    }
}

impl fmt::Debug for Forward {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Forward").field(self.spec()).finish()
    }
}
