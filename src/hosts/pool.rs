use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout_at};

use super::HostRef;
use crate::lock::lock;

/// How often a waiter looks whether a connection has become light, or dead.
const LOOK_AGAIN: Duration = Duration::from_millis(250);

/// How a pool makes a connection.
pub trait Connect: Send + Sync + 'static {
    /// What is pooled.
    type Connection: Pooled;
    /// Why none could be made.
    type Error: Send + Sync;

    /// Makes a connection to `host`, in bounded time.
    fn connect(&self, host: &HostRef) -> impl Future<Output = Result<Self::Connection, Self::Error>> + Send;
}

/// What a pool must know of a connection.
pub trait Pooled: Send + Sync + 'static {
    /// Whether it is gone.
    fn is_closed(&self) -> bool;

    /// Whether so much comes over it just now that another channel would suffer.
    fn is_heavy(&self) -> bool;

    /// Whether it did not answer when it was asked for a sign of life, and has not been heard of since.
    fn is_suspect(&self) -> bool;
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
    /// How long a caller waits for a place when all are taken.
    pub queue: Duration,
}

/// So many connections to a host may be in the making at the same time. OpenSSH's MaxStartups begins to refuse at 10.
const HANDSHAKES: usize = 4;

/// Why there is no lease.
#[derive(Debug, thiserror::Error)]
pub enum PoolError<E> {
    /// No connection could be made. Who waited for the same one is told the same.
    #[error(transparent)]
    Connect(Arc<E>),
    /// Every connection that the host may get was full for as long as a caller waits.
    #[error("all {connections} connections to {host} have been in full use for {waited:?}")]
    Full {
        /// The host.
        host: String,
        /// How many there are.
        connections: usize,
        /// How long a place was waited for.
        waited: Duration,
    },
}

/// Shares connections between channels, host by host.
///
/// A lease is a place for one channel. A further connection is made only when all are full or heavy with traffic, and not
/// more than callers wait for; the first one of a host alone, so that a login that fails does so once. A dead connection is
/// never leased again.
pub struct Pool<C: Connect> {
    connect: C,
    limits: PoolLimits,
    hosts: Mutex<HashMap<HostRef, Arc<HostOf<C>>>>,
}

type HostOf<C> = Host<<C as Connect>::Connection, <C as Connect>::Error>;

/// A host's connections.
struct Host<T, E> {
    slots: Mutex<Vec<Arc<Slot<T>>>>,
    queue: Mutex<Queue<E>>,
    /// There may be a place now, or a reason why there is none.
    changed: Arc<watch::Sender<()>>,
    learned: Learned,
}

/// Those who want a place.
struct Queue<E> {
    /// How many wait.
    waiting: usize,
    /// How many make a connection.
    connecting: usize,
    /// How many have failed to.
    failures: usize,
    last_failure: Option<Arc<E>>,
}

/// How many channels a connection of a host took when the server refused another one, and when that was.
type Learned = Arc<Mutex<Option<(usize, Instant)>>>;

/// What was learned from a refusal counts so long for new connections: the server may also have been slow to clean up.
const LEARNED_FOR: Duration = Duration::from_secs(60);

/// What somebody who wants a place does next.
enum Step<T, E> {
    Take(Lease<T>),
    Connect,
    Wait,
    GiveUp(Arc<E>),
}

/// Counts somebody in the queue while it lives.
struct Counted<'a, E> {
    queue: &'a Mutex<Queue<E>>,
    changed: &'a watch::Sender<()>,
    count: fn(&mut Queue<E>) -> &mut usize,
}

impl<'a, E> Counted<'a, E> {
    fn new<T>(host: &'a Host<T, E>, count: fn(&mut Queue<E>) -> &mut usize) -> Self {
        *count(&mut lock(&host.queue)) += 1;
        Self::already(host, count)
    }

    /// For somebody who is counted already.
    fn already<T>(host: &'a Host<T, E>, count: fn(&mut Queue<E>) -> &mut usize) -> Self {
        Self { queue: &host.queue, changed: &host.changed, count }
    }
}

impl<E> Drop for Counted<'_, E> {
    fn drop(&mut self) {
        *(self.count)(&mut lock(self.queue)) -= 1;
        self.changed.send_modify(|()| ());
    }
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
    /// Who waits for a place is told when one is free.
    changed: Arc<watch::Sender<()>>,
    learned: Learned,
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

impl<C: Connect> Pool<C> {
    /// An empty pool.
    pub fn new(connect: C, limits: PoolLimits) -> Self {
        Self { connect, limits, hosts: Mutex::default() }
    }

    /// How connections are made.
    pub(super) fn connect(&self) -> &C {
        &self.connect
    }

    /// A place on a connection to `host`; connects when there is none, and waits when there may be no more.
    ///
    /// Cancelling abandons a connection that is being made; another waiter then makes its own.
    pub async fn lease(&self, host: &HostRef) -> Result<Lease<C::Connection>, PoolError<C::Error>> {
        let entry = Arc::clone(lock(&self.hosts).entry(host.clone()).or_default());
        let began = Instant::now();
        let failures = lock(&entry.queue).failures;
        let waiting = Counted::new(&entry, |queue| &mut queue.waiting);
        let mut changed = entry.changed.subscribe();
        loop {
            // From here on no change is missed.
            changed.mark_unchanged();
            match entry.step(&self.limits, failures) {
                Step::Take(lease) => return Ok(lease),
                Step::GiveUp(error) => return Err(PoolError::Connect(error)),
                Step::Connect => break,
                Step::Wait => {}
            }
            // A connection may become light, or die, without anybody's telling.
            let look_again = (Instant::now() + LOOK_AGAIN).min(began + self.limits.queue);
            if timeout_at(look_again, changed.changed()).await.is_err()
                && began.elapsed() >= self.limits.queue
            {
                let (connections, waited) = (lock(&entry.slots).len(), self.limits.queue);
                if connections == 0 && lock(&entry.queue).connecting > 0 {
                    // The first connection is still in the making, as when a person is asked something.
                    sleep(LOOK_AGAIN).await;
                    continue;
                }
                return Err(PoolError::Full { host: host.name.clone(), connections, waited });
            }
        }
        let connecting = Counted::already(&entry, |queue| &mut queue.connecting);
        drop(waiting);
        match self.connect.connect(host).await {
            Ok(connection) => Ok(entry.add(connection, self.limits.channels_per_connection)),
            Err(error) => {
                let error = entry.fail(error);
                drop(connecting);
                self.forget_if_unused(host, entry);
                Err(PoolError::Connect(error))
            }
        }
    }

    /// A connection to `host` that nobody else gets a place on: one that is idle, or a new one. It is given up with the lease.
    pub async fn lease_alone(&self, host: &HostRef) -> Result<Lease<C::Connection>, PoolError<C::Error>> {
        let lease = self.lease(host).await?;
        if lease.take_all() {
            return Ok(lease);
        }
        let entry = Arc::clone(lock(&self.hosts).entry(host.clone()).or_default());
        let _connecting = Counted::new(&entry, |queue| &mut queue.connecting);
        let connected = self.connect.connect(host).await;
        connected
            .map(|connection| entry.add(connection, 0))
            .map_err(|error| PoolError::Connect(entry.fail(error)))
    }

    /// A host that nobody has reached, and nobody waits for, leaves nothing behind.
    fn forget_if_unused(&self, host: &HostRef, entry: Arc<HostOf<C>>) {
        let mut hosts = lock(&self.hosts);
        drop(entry);
        if hosts.get(host).is_some_and(|entry| Arc::strong_count(entry) == 1 && lock(&entry.slots).is_empty())
        {
            hosts.remove(host);
        }
    }

    /// A place on a live connection to `host` beyond its planned capacity, for a short call such as a signal. None when
    /// there is no connection that `will_do`.
    pub fn borrow(
        &self,
        host: &HostRef,
        will_do: impl Fn(&C::Connection) -> bool,
    ) -> Option<Lease<C::Connection>> {
        let entry = Arc::clone(lock(&self.hosts).get(host)?);
        let slots = lock(&entry.slots);
        let live = slots.iter().filter(|slot| slot.is_usable() && will_do(&slot.connection));
        live.min_by_key(|slot| (slot.connection.is_heavy(), lock(&slot.state).in_use)).map(Lease::take)
    }

    /// Looks at every live connection to `host`.
    pub fn each(&self, host: &HostRef, look: impl Fn(&C::Connection)) {
        let Some(entry) = lock(&self.hosts).get(host).cloned() else { return };
        lock(&entry.slots)
            .iter()
            .filter(|slot| !slot.connection.is_closed())
            .for_each(|slot| look(&slot.connection));
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
    pub fn usage(&self, host: &HostRef) -> Usage {
        let Some(entry) = lock(&self.hosts).get(host).cloned() else { return Usage::default() };
        let slots = lock(&entry.slots);
        let live = slots.iter().filter(|slot| !slot.connection.is_closed());
        live.fold(Usage::default(), |usage, slot| Usage {
            connections: usage.connections + 1,
            channels_in_use: usage.channels_in_use + lock(&slot.state).in_use,
        })
    }
}

impl<T, E> Default for Host<T, E> {
    fn default() -> Self {
        let queue = Queue { waiting: 0, connecting: 0, failures: 0, last_failure: None };
        Self {
            slots: Mutex::default(),
            queue: Mutex::new(queue),
            changed: Arc::default(),
            learned: Arc::default(),
        }
    }
}

impl<T: Pooled, E> Host<T, E> {
    /// What somebody does next who came when there had been so many `failures`.
    fn step(&self, limits: &PoolLimits, failures: usize) -> Step<T, E> {
        if let Some(lease) = self.place(Load::Light) {
            return Step::Take(lease);
        }
        let live = lock(&self.slots).iter().filter(|slot| slot.is_usable()).count();
        let mut queue = lock(&self.queue);
        if queue.failures > failures {
            return match (self.place(Load::Any), &queue.last_failure) {
                (Some(lease), _) => Step::Take(lease),
                (None, Some(error)) if live == 0 => Step::GiveUp(Arc::clone(error)),
                // Others are there: their places will do.
                (None, _) => Step::Wait,
            };
        }
        if live + queue.connecting >= limits.connections_per_host {
            return self.place(Load::Any).map_or(Step::Wait, Step::Take);
        }
        let handshakes = if live == 0 { 1 } else { HANDSHAKES };
        let promised = queue.connecting * limits.channels_per_connection.saturating_sub(1);
        if queue.connecting >= handshakes || queue.waiting <= promised {
            return Step::Wait;
        }
        // Counted here, so that nobody else decides the same meanwhile.
        queue.connecting += 1;
        Step::Connect
    }

    fn fail(&self, error: E) -> Arc<E> {
        let error = Arc::new(error);
        let mut queue = lock(&self.queue);
        queue.failures += 1;
        queue.last_failure = Some(Arc::clone(&error));
        error
    }

    /// A place on a connection that has one, the fullest first, so that idle ones can expire.
    fn place(&self, load: Load) -> Option<Lease<T>> {
        let mut slots = lock(&self.slots);
        // One that takes no channel at all is of no use.
        let is_useless = |state: &SlotState| state.capacity == 0 && state.in_use == 0;
        slots.retain(|slot| !slot.connection.is_closed() && !is_useless(&lock(&slot.state)));
        let free = |slot: &&Arc<Slot<T>>| {
            let state = lock(&slot.state);
            state.in_use < state.capacity
                && slot.is_usable()
                && (load == Load::Any || !slot.connection.is_heavy())
        };
        slots.iter().filter(free).max_by_key(|slot| lock(&slot.state).in_use).map(Lease::take)
    }

    fn add(&self, connection: T, capacity: usize) -> Lease<T> {
        let learned = lock(&self.learned).filter(|(_, when)| when.elapsed() < LEARNED_FOR);
        let capacity = learned.map_or(capacity, |(learned, _)| learned.min(capacity));
        let state = SlotState { in_use: 0, capacity, idle_since: Instant::now() };
        let slot = Arc::new(Slot {
            connection,
            state: Mutex::new(state),
            changed: Arc::clone(&self.changed),
            learned: Arc::clone(&self.learned),
        });
        let lease = Lease::take(&slot);
        lock(&self.slots).push(slot);
        lease
    }

    fn expire(&self, idle: Duration) -> Vec<Lease<T>> {
        let mut slots = lock(&self.slots);
        let (expired, kept) = slots.drain(..).filter(|slot| !slot.connection.is_closed()).partition(|slot| {
            let state = lock(&slot.state);
            state.in_use == 0 && (state.capacity == 0 || state.idle_since.elapsed() >= idle)
        });
        *slots = kept;
        let expired: Vec<Arc<Slot<T>>> = expired;
        expired.iter().map(Lease::take).collect()
    }
}

impl<T: Pooled> Slot<T> {
    fn is_usable(&self) -> bool {
        !self.connection.is_closed() && !self.connection.is_suspect()
    }
}

impl<T> Lease<T> {
    /// Lets nobody else have a place on the connection any more; false when somebody has one.
    fn take_all(&self) -> bool {
        let mut state = lock(&self.slot.state);
        let is_only = state.in_use == 1;
        if is_only {
            state.capacity = 0;
        }
        is_only
    }

    fn take(slot: &Arc<Slot<T>>) -> Self {
        lock(&slot.state).in_use += 1;
        Self { slot: Arc::clone(slot) }
    }

    /// The connection.
    pub fn connection(&self) -> &T {
        &self.slot.connection
    }

    /// Whether nobody else has a place on the connection.
    pub fn is_only(&self) -> bool {
        lock(&self.slot.state).in_use == 1
    }

    /// Another place on the same connection, beyond its planned capacity.
    pub fn beside(&self) -> Self {
        Self::take(&self.slot)
    }

    /// The server has refused a channel: this connection takes no more than it has now, and new ones not many more. Tells
    /// whether it was the only one.
    pub fn refused(self) -> bool {
        let mut state = lock(&self.slot.state);
        state.capacity = state.in_use - 1;
        *lock(&self.slot.learned) = Some((state.capacity.max(1), Instant::now()));
        state.capacity == 0
    }
}

impl<T> Drop for Lease<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.slot.state);
        state.in_use -= 1;
        state.idle_since = Instant::now();
        drop(state);
        self.slot.changed.send_modify(|()| ());
    }
}

#[cfg(test)]
mod tests;
