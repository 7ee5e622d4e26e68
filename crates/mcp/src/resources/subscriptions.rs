//! Notifies clients of changed resources: one task for each subscription, at most two
//! notifications a second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use rmcp::RoleServer;
use rmcp::model::{ErrorData, ResourceUpdatedNotificationParam};
use rmcp::service::{Peer, SubscriptionContext};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::sleep;

use super::resource_uri::ResourceUri;
use super::resources::told;
use sshjobs_base::lock::lock;
use sshjobs_wire::{Code, Error, Service, TailRequest};

/// Subscriptions of one session, for revisions before 2026-07-28. Dropping it ends them.
#[derive(Default)]
pub(crate) struct Subscriptions(Mutex<WatchedLogs>);

#[derive(Default)]
struct WatchedLogs {
    tasks: JoinSet<()>,
    by_uri: HashMap<String, AbortHandle>,
    of_list: Option<AbortHandle>,
}

/// Minimum time between two notifications about one resource.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest wait for news in one request; another one follows.
const WAIT_MS: u64 = 50_000;
/// Maximum subscriptions of one session.
const MOST: usize = 1000;

impl Subscriptions {
    /// Notifies `peer` whenever a job's log changes, until the job ends.
    pub(crate) async fn add(
        &self,
        service: Arc<Service>,
        uri: String,
        peer: Peer<RoleServer>,
    ) -> Result<(), ErrorData> {
        let log = WatchedLog::find(&service, &uri).await.map_err(|error| told(&error))?;
        // No await from here, since the lock is held.
        let mut watched = lock(&self.0);
        // A JoinSet keeps ended tasks until they are joined.
        while watched.tasks.try_join_next().is_some() {}
        watched.by_uri.retain(|_, task| !task.is_finished());
        if watched.by_uri.len() >= MOST {
            let error = Error::new(
                Code::Capacity,
                "there are too many subscriptions",
                "unsubscribe from some",
            );
            return Err(told(&error));
        }
        let about = uri.clone();
        let mut log = log;
        // Holds no `self`: dropping the session's subscriptions must end this task.
        let task = watched.tasks.spawn(async move {
            while let Some(change) = log.changed(&service).await {
                let told = peer
                    .notify_resource_updated(ResourceUpdatedNotificationParam::new(&about))
                    .await;
                if told.is_err() || change == WatchedChange::Ended {
                    return;
                }
                sleep(PAUSE).await;
            }
        });
        if let Some(before) = watched.by_uri.insert(uri, task) {
            before.abort();
        }
        Ok(())
    }

    /// Notifies `peer` whenever the list of resources changes.
    pub(crate) fn watch_list(&self, service: Arc<Service>, peer: Peer<RoleServer>) {
        let mut watched = lock(&self.0);
        let task = watched.tasks.spawn(async move {
            let mut list = ListVersion::default();
            loop {
                list.changed(&service).await;
                if peer.notify_resource_list_changed().await.is_err() {
                    return;
                }
            }
        });
        if let Some(before) = watched.of_list.replace(task) {
            before.abort();
        }
    }

    /// Runs a task until the session ends.
    pub(crate) fn add_task(&self, task: impl Future<Output = ()> + Send + 'static) {
        lock(&self.0).tasks.spawn(task);
    }

    /// Stops notifications about a log.
    pub(crate) fn remove(&self, uri: &str) {
        if let Some(task) = lock(&self.0).by_uri.remove(uri) {
            task.abort();
        }
    }
}

/// Serves a subscription of revision 2026-07-28 until it is cancelled, or until all of its jobs
/// have ended if it does not include the list.
pub(crate) async fn listen(
    service: &Service,
    context: SubscriptionContext,
) -> Result<(), ErrorData> {
    let is_about_list = context.accepted().resources_list_changed == Some(true);
    let uris = context.accepted().resource_subscriptions.clone().unwrap_or_default();
    let mut followed = FuturesUnordered::new();
    for uri in uris.into_iter().take(MOST) {
        let mut log = WatchedLog::find(service, &uri).await.map_err(|error| told(&error))?;
        let sink = context.sink().clone();
        followed.push(async move {
            while let Some(change) = log.changed(service).await {
                let told = sink.notify_resource_updated(&uri).await;
                if told.is_err() || change == WatchedChange::Ended {
                    return;
                }
                sleep(PAUSE).await;
            }
        });
    }
    let watched = async {
        let mut list = ListVersion::default();
        if !is_about_list {
            return;
        }
        loop {
            list.changed(service).await;
            if context.sink().notify_resource_list_changed().await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = context.cancelled() => {}
        () = service.closed() => {}
        ((), ()) = async { tokio::join!(watched, async { while followed.next().await.is_some() {} }) } => {}
    }
    Ok(())
}

/// Last known version of the list of resources.
#[derive(Default)]
struct ListVersion(Option<u64>);

impl ListVersion {
    /// Waits until the list changes, with a minimum pause since the last change.
    async fn changed(&mut self, service: &Service) {
        if self.0.is_none() {
            // The state at the beginning; only what differs from it is a change.
            self.0 = Some(service.library().changes(None).await);
        } else {
            // Before the wait, so that changes during the pause are one notification.
            sleep(PAUSE).await;
        }
        self.0 = Some(service.library().changes(self.0).await);
    }
}

/// A job's log, and the part that was already notified.
struct WatchedLog {
    job_id: String,
    known: u64,
}

impl WatchedLog {
    async fn find(service: &Service, uri: &str) -> Result<Self, Error> {
        let ResourceUri::Log { job_id, .. } = ResourceUri::parse(uri)? else {
            return Err(Error::new(
                Code::Unsupported,
                "only logs of jobs change",
                "read it again instead",
            ));
        };
        let known = service.tail(peek(&job_id, i64::MAX, 0)).await?.total_lines;
        Ok(Self { job_id, known })
    }

    /// Waits until lines arrive or the job ends. `None` if the job is no longer known.
    async fn changed(&mut self, service: &Service) -> Option<WatchedChange> {
        loop {
            let since = i64::try_from(self.known).unwrap_or(i64::MAX);
            let reply = service.tail(peek(&self.job_id, since, WAIT_MS)).await.ok()?;
            // Also without new lines, so that the client reads the final state.
            if reply.standing.state.is_final() {
                return Some(WatchedChange::Ended);
            }
            let known = std::mem::replace(&mut self.known, reply.total_lines);
            if known < reply.total_lines {
                return Some(WatchedChange::Grown);
            }
            // Part of a line has arrived, or the server is shutting down.
            sleep(PAUSE).await;
        }
    }
}

/// Change of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchedChange {
    /// New lines have arrived.
    Grown,
    /// The job has ended.
    Ended,
}

fn peek(job_id: &str, since: i64, wait_ms: u64) -> TailRequest {
    TailRequest {
        since_line_no: Some(since),
        max_lines: Some(1),
        ..TailRequest::new(job_id, 0, wait_ms)
    }
}
