//! Shares connections between callers, host by host. Every wait is bounded by the limits.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use super::connect_or_wait::{ConnectStep, PooledHost, QueuedAs, QueuedCaller};
use super::{Connect, HostUsage, Lease, PoolError, PoolLimits, Pooled};
use crate::hosts::HostRef;
use sshjobs_base::lock::lock;

/// Interval at which a waiting caller checks whether a connection has become light or dead.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// Connections that are shared between channels, host by host.
///
/// A lease is a slot for one channel. The pool makes another connection only when all are full or
/// heavily loaded, and not more than callers wait for. The first connection to a host is made
/// alone, so that a failing login fails only once. A dead connection is never leased again.
pub struct Pool<C: Connect> {
    connect: C,
    limits: PoolLimits,
    pub(super) hosts: Mutex<HashMap<HostRef, Arc<HostOf<C>>>>,
}

type HostOf<C> = PooledHost<<C as Connect>::Connection, <C as Connect>::Error>;

impl<C: Connect> Pool<C> {
    /// An empty pool.
    pub fn new(connect: C, limits: PoolLimits) -> Self {
        Self {
            connect,
            limits,
            hosts: Mutex::default(),
        }
    }

    /// The connector.
    pub(crate) fn connect(&self) -> &C {
        &self.connect
    }

    /// A slot on a connection to `host`. Connects if none exists, and waits if no more are allowed.
    ///
    /// Cancelling abandons a connection in progress; another waiting caller then makes its own.
    pub async fn lease(&self, host: &HostRef) -> Result<Lease<C::Connection>, PoolError<C::Error>> {
        let shared = self.connect.shared(host);
        let leased = self.lease_from(&shared).await;
        // The caller's own login is not tried a second time.
        if shared != *host && self.separates(host, &leased) {
            self.lease_from(host).await
        } else {
            leased
        }
    }

    /// Whether to try again with connections of the caller's own, because shared ones can't be
    /// made.
    fn separates(
        &self,
        host: &HostRef,
        leased: &Result<Lease<C::Connection>, PoolError<C::Error>>,
    ) -> bool {
        matches!(leased, Err(PoolError::Connect(error)) if self.connect.separate(host, error))
    }

    fn entry(&self, host: &HostRef) -> Arc<HostOf<C>> {
        Arc::clone(lock(&self.hosts).entry(host.clone()).or_default())
    }

    /// The entry of the host as the caller reaches it.
    fn known(&self, host: &HostRef) -> Option<Arc<HostOf<C>>> {
        lock(&self.hosts).get(&self.connect.shared(host)).cloned()
    }

    async fn lease_from(
        &self,
        host: &HostRef,
    ) -> Result<Lease<C::Connection>, PoolError<C::Error>> {
        let entry = self.entry(host);
        let began = Instant::now();
        // Read before the first step: each later failure ends this caller's wait, too.
        let failures = lock(&entry.queue).failures;
        let waiting = QueuedCaller::enter(&entry, QueuedAs::Waiting);
        let mut changed = entry.changed.subscribe();
        loop {
            // From here on no change is missed.
            changed.mark_unchanged();
            match entry.step(&self.limits, failures) {
                ConnectStep::Take(lease) => return Ok(lease),
                ConnectStep::GiveUp(error) => return Err(PoolError::Connect(error)),
                ConnectStep::Connect => break,
                ConnectStep::Wait => {}
            }
            // A connection may become light or die without a notification.
            let look_again = (Instant::now() + RETRY_INTERVAL).min(began + self.limits.queue);
            if timeout_at(look_again, changed.changed()).await.is_err()
                && began.elapsed() >= self.limits.queue
            {
                let connections = lock(&entry.slots).len();
                let waited = self.limits.queue;
                if connections == 0 && lock(&entry.queue).connecting > 0 {
                    // The first connection is still in progress, for example because a person is
                    // asked.
                    sleep(RETRY_INTERVAL).await;
                    continue;
                }
                return Err(PoolError::Full {
                    host: host.name.clone(),
                    connections,
                    waited,
                });
            }
        }
        // `step` has counted this caller. The guard takes the count back, also on cancellation.
        let connecting = QueuedCaller::counted(&entry, QueuedAs::Connecting);
        drop(waiting);
        match Box::pin(self.connect.connect(host)).await {
            // `connecting` is dropped after `add`, so that the callers it wakes find the slots.
            Ok(connection) => Ok(entry.add(connection, self.limits.channels_per_connection)),
            Err(error) => {
                let error = entry.fail(error);
                // After `fail`, so that the callers it wakes find the failure and do not try again.
                drop(connecting);
                self.forget_if_unused(host, entry);
                Err(PoolError::Connect(error))
            }
        }
    }

    /// A connection to `host` that no other caller shares until the lease is returned: an idle one,
    /// or a new one.
    pub async fn lease_alone(
        &self,
        host: &HostRef,
    ) -> Result<Lease<C::Connection>, PoolError<C::Error>> {
        let shared = self.connect.shared(host);
        let leased = self.lease_alone_from(&shared).await;
        // The shared login is refused: the caller's own is tried, unless it is the same.
        if shared != *host && self.separates(host, &leased) {
            self.lease_alone_from(host).await
        } else {
            leased
        }
    }

    async fn lease_alone_from(
        &self,
        host: &HostRef,
    ) -> Result<Lease<C::Connection>, PoolError<C::Error>> {
        let entry = self.entry(host);
        if let Some(lease) = entry.idle() {
            return Ok(lease);
        }
        let lease = self.lease_from(host).await?;
        if lease.take_all() {
            return Ok(lease);
        }
        let _connecting = QueuedCaller::enter(&entry, QueuedAs::Connecting);
        match Box::pin(self.connect.connect(host)).await {
            Ok(connection) => Ok(entry.add_alone(connection, self.limits.channels_per_connection)),
            Err(error) => Err(PoolError::Connect(entry.fail(error))),
        }
    }

    /// A new connection to `host` for one caller, discarded after the lease is returned. A name may
    /// lead to several machines, so each new connection may reach another one.
    pub async fn lease_new(
        &self,
        host: &HostRef,
    ) -> Result<Lease<C::Connection>, PoolError<C::Error>> {
        let shared = self.connect.shared(host);
        let leased = self.lease_new_from(&shared).await;
        // The shared login is refused: the caller's own is tried, unless it is the same.
        if shared != *host && self.separates(host, &leased) {
            self.lease_new_from(host).await
        } else {
            leased
        }
    }

    async fn lease_new_from(
        &self,
        host: &HostRef,
    ) -> Result<Lease<C::Connection>, PoolError<C::Error>> {
        let entry = self.entry(host);
        let _connecting = QueuedCaller::enter(&entry, QueuedAs::Connecting);
        let connected = self.connect.connect(host).await;
        connected
            .map(|connection| entry.add(connection, 0))
            .map_err(|error| PoolError::Connect(entry.fail(error)))
    }

    /// A host without connections and waiting callers is removed.
    fn forget_if_unused(&self, host: &HostRef, entry: Arc<HostOf<C>>) {
        let mut hosts = lock(&self.hosts);
        // Under the lock, so that the count below is exact: entries are cloned only under it.
        drop(entry);
        if hosts
            .get(host)
            .is_some_and(|entry| Arc::strong_count(entry) == 1 && lock(&entry.slots).is_empty())
        {
            hosts.remove(host);
        }
    }

    /// A slot on a live connection to `host`, even above its capacity, for a short call such as a
    /// signal. `None` if no connection satisfies `will_do`.
    pub fn borrow(
        &self,
        host: &HostRef,
        will_do: impl Fn(&C::Connection) -> bool,
    ) -> Option<Lease<C::Connection>> {
        let entry = self.known(host)?;
        let slots = lock(&entry.slots);
        let live = slots.iter().filter(|slot| slot.is_usable() && will_do(&slot.connection));
        live.min_by_key(|slot| (slot.connection.is_heavy(), lock(&slot.state).in_use))
            .map(Lease::take)
    }

    /// Calls `look` with every live connection to `host`.
    pub fn each(&self, host: &HostRef, look: impl Fn(&C::Connection)) {
        let Some(entry) = self.known(host) else { return };
        lock(&entry.slots)
            .iter()
            .filter(|slot| !slot.connection.is_closed())
            .for_each(|slot| look(&slot.connection));
    }

    /// Whether any caller has a live connection to a host of this name.
    pub fn is_reached(&self, name: &str) -> bool {
        let entries: Vec<_> = lock(&self.hosts)
            .iter()
            .filter(|(host, _)| host.name == name)
            .map(|(_, entry)| Arc::clone(entry))
            .collect();
        entries
            .iter()
            .any(|entry| lock(&entry.slots).iter().any(|slot| slot.is_usable()))
    }

    /// Whether no caller has used the pool yet.
    pub fn is_empty(&self) -> bool {
        lock(&self.hosts).is_empty()
    }

    /// Removes connections that are dead or have been idle for too long, and returns the idle ones.
    pub fn expire(&self) -> Vec<Lease<C::Connection>> {
        let entries: Vec<_> = lock(&self.hosts).values().cloned().collect();
        entries.iter().flat_map(|entry| entry.expire(self.limits.idle)).collect()
    }

    /// Empties the pool and returns its connections.
    pub fn drain(&self) -> Vec<Lease<C::Connection>> {
        let entries: Vec<_> = lock(&self.hosts).drain().map(|(_, entry)| entry).collect();
        entries
            .iter()
            .flat_map(|entry| std::mem::take(&mut *lock(&entry.slots)))
            .map(|slot| Lease::take(&slot))
            .collect()
    }

    /// Use of `host`.
    pub fn usage(&self, host: &HostRef) -> HostUsage {
        self.known(host).map_or_else(HostUsage::default, |entry| Self::usage_of(&entry))
    }

    /// Use of all hosts.
    pub fn total_usage(&self) -> HostUsage {
        let entries: Vec<_> = lock(&self.hosts).values().cloned().collect();
        entries.iter().map(|entry| Self::usage_of(entry)).fold(
            HostUsage::default(),
            |one, other| HostUsage {
                connections: one.connections + other.connections,
                channels_in_use: one.channels_in_use + other.channels_in_use,
            },
        )
    }

    fn usage_of(entry: &HostOf<C>) -> HostUsage {
        let slots = lock(&entry.slots);
        let live = slots.iter().filter(|slot| !slot.connection.is_closed());
        live.fold(HostUsage::default(), |usage, slot| HostUsage {
            connections: usage.connections + 1,
            channels_in_use: usage.channels_in_use + lock(&slot.state).in_use,
        })
    }
}
