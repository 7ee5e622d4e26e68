use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// How a pool makes a connection.
pub trait Connect: Send + Sync + 'static {
    /// What is pooled.
    type Connection: Pooled;
    /// Why none could be made.
    type Error: Send;

    /// Makes a connection to `host`, in bounded time.
    fn connect(&self, host: &str) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send;
}

/// What a pool must know of a connection.
pub trait Pooled: Send + Sync + 'static {
    /// Whether it is gone.
    fn is_closed(&self) -> bool;

    /// Whether so much comes over it just now that another channel would suffer.
    fn is_heavy(&self) -> bool;
}

/// The bounds of a [`Pool`].
#[derive(Clone, Copy, Debug)]
pub struct PoolLimits {
    /// How many channels are planned on one connection. OpenSSH's MaxSessions is 10; two are left for signals.
    pub channels_per_connection: usize,
    /// How many connections one host may get.
    pub connections_per_host: usize,
    /// After this long without a channel a connection is given up.
    pub idle: Duration,
}

/// Why there is no lease.
#[derive(Debug, thiserror::Error)]
pub enum PoolError<E> {
    /// No connection could be made.
    #[error(transparent)]
    Connect(E),
    /// Every connection that the host may get is full.
    #[error("all {connections} connections to {host} are in full use")]
    Full {
        /// The host.
        host: String,
        /// How many there are.
        connections: usize,
    },
}

/// Shares connections between channels, host by host.
///
/// A lease is a place for one channel. A further connection is made only when all are full or heavy with traffic, and by
/// one caller at a time for each host (the others wait and share it). A dead connection is never leased again.
pub struct Pool<C: Connect> {
    connect: C,
    limits: PoolLimits,
    hosts: Mutex<HashMap<String, Arc<Host<C::Connection>>>>,
}

/// A host's connections.
struct Host<T> {
    slots: Mutex<Vec<Arc<Slot<T>>>>,
    /// Held while connecting, so that one caller connects at a time.
    connecting: tokio::sync::Mutex<()>,
}

/// Which connections will do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Load {
    Light,
    Any,
}

struct Slot<T> {
    connection: T,
    state: Mutex<SlotState>,
}

struct SlotState {
    in_use: usize,
    /// How many channels it takes; less than planned when the server has refused one.
    capacity: usize,
    idle_since: Instant,
}

/// The right to open one channel on a connection. Dropping it gives the place back.
pub struct Lease<T> {
    slot: Arc<Slot<T>>,
}

/// What a pool holds for one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Live connections.
    pub connections: usize,
    /// Leases on them.
    pub channels_in_use: usize,
}

/// A poisoned lock only tells that some task panicked; the numbers under it are whole after every statement.
fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<C: Connect> Pool<C> {
    /// An empty pool.
    pub fn new(connect: C, limits: PoolLimits) -> Self {
        Self { connect, limits, hosts: Mutex::default() }
    }

    /// A place on a connection to `host`; connects when there is none.
    ///
    /// Cancelling abandons a connection that is being made; another waiter then makes its own.
    pub async fn lease(&self, host: &str) -> Result<Lease<C::Connection>, PoolError<C::Error>> {
        let entry = Arc::clone(lock(&self.hosts).entry(host.to_owned()).or_default());
        if let Some(lease) = entry.place(Load::Light) {
            return Ok(lease);
        }
        let _one_at_a_time = entry.connecting.lock().await;
        if let Some(lease) = entry.place(Load::Light) {
            return Ok(lease);
        }
        let connections = lock(&entry.slots).len();
        if connections >= self.limits.connections_per_host {
            let full = PoolError::Full { host: host.to_owned(), connections };
            return entry.place(Load::Any).ok_or(full);
        }
        let connection = self.connect.connect(host).await.map_err(PoolError::Connect)?;
        Ok(entry.add(connection, self.limits.channels_per_connection))
    }

    /// A place on a live connection to `host` beyond its planned capacity, for a short call such as a signal. None when
    /// there is no connection.
    pub fn borrow(&self, host: &str) -> Option<Lease<C::Connection>> {
        let entry = Arc::clone(lock(&self.hosts).get(host)?);
        let slots = lock(&entry.slots);
        let live = slots.iter().filter(|slot| !slot.connection.is_closed());
        live.min_by_key(|slot| (slot.connection.is_heavy(), lock(&slot.state).in_use)).map(Lease::take)
    }

    /// Gives up what is dead or has been idle for too long, and returns the idle ones.
    pub fn expire(&self) -> Vec<Lease<C::Connection>> {
        let entries: Vec<_> = lock(&self.hosts).values().cloned().collect();
        entries.iter().flat_map(|entry| entry.expire(self.limits.idle)).collect()
    }

    /// Empties the pool and returns what it held.
    pub fn drain(&self) -> Vec<Lease<C::Connection>> {
        let entries: Vec<_> = lock(&self.hosts).drain().map(|(_, entry)| entry).collect();
        entries
            .iter()
            .flat_map(|entry| std::mem::take(&mut *lock(&entry.slots)))
            .map(|slot| Lease::take(&slot))
            .collect()
    }

    /// What the pool holds for `host`.
    pub fn usage(&self, host: &str) -> Usage {
        let Some(entry) = lock(&self.hosts).get(host).cloned() else { return Usage::default() };
        let slots = lock(&entry.slots);
        let live = slots.iter().filter(|slot| !slot.connection.is_closed());
        live.fold(Usage::default(), |usage, slot| Usage {
            connections: usage.connections + 1,
            channels_in_use: usage.channels_in_use + lock(&slot.state).in_use,
        })
    }
}

impl<T> Default for Host<T> {
    fn default() -> Self {
        Self { slots: Mutex::default(), connecting: tokio::sync::Mutex::default() }
    }
}

impl<T: Pooled> Host<T> {
    /// A place on a connection that has one, the fullest first, so that idle ones can expire.
    fn place(&self, load: Load) -> Option<Lease<T>> {
        let mut slots = lock(&self.slots);
        slots.retain(|slot| !slot.connection.is_closed());
        let free = |slot: &&Arc<Slot<T>>| {
            let state = lock(&slot.state);
            state.in_use < state.capacity && (load == Load::Any || !slot.connection.is_heavy())
        };
        slots.iter().filter(free).max_by_key(|slot| lock(&slot.state).in_use).map(Lease::take)
    }

    fn add(&self, connection: T, capacity: usize) -> Lease<T> {
        let state = SlotState { in_use: 0, capacity, idle_since: Instant::now() };
        let slot = Arc::new(Slot { connection, state: Mutex::new(state) });
        let lease = Lease::take(&slot);
        lock(&self.slots).push(slot);
        lease
    }

    fn expire(&self, idle: Duration) -> Vec<Lease<T>> {
        let mut slots = lock(&self.slots);
        let (expired, kept) = slots.drain(..).filter(|slot| !slot.connection.is_closed()).partition(|slot| {
            let state = lock(&slot.state);
            state.in_use == 0 && state.idle_since.elapsed() >= idle
        });
        *slots = kept;
        let expired: Vec<Arc<Slot<T>>> = expired;
        expired.iter().map(Lease::take).collect()
    }
}

impl<T> Lease<T> {
    fn take(slot: &Arc<Slot<T>>) -> Self {
        lock(&slot.state).in_use += 1;
        Self { slot: Arc::clone(slot) }
    }

    /// The connection.
    pub fn connection(&self) -> &T {
        &self.slot.connection
    }

    /// Another place on the same connection, beyond its planned capacity.
    pub fn beside(&self) -> Self {
        Self::take(&self.slot)
    }

    /// The server has refused a channel: this connection takes no more than it has now.
    pub fn refused(self) {
        let mut state = lock(&self.slot.state);
        state.capacity = state.in_use.saturating_sub(1).max(1);
    }
}

impl<T> Drop for Lease<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.slot.state);
        state.in_use -= 1;
        state.idle_since = Instant::now();
    }
}

#[cfg(test)]
mod tests;
