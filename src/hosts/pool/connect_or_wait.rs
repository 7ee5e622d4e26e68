use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::slot::{Learned, Slot, SlotState};
use super::{Lease, PoolLimits, Pooled};
use crate::lock::lock;

/// Most handshakes with one host at the same time. OpenSSH's MaxStartups begins to refuse at 10.
const HANDSHAKES: usize = 4;
/// Time for which a refusal limits new connections, too: the server may only have been slow to clean up.
const LEARNED_FOR: Duration = Duration::from_secs(60);

/// A host's connections.
pub(super) struct Host<T, E> {
    pub(super) slots: Mutex<Vec<Arc<Slot<T>>>>,
    pub(super) queue: Mutex<Queue<E>>,
    /// There may be a place now, or a reason why there is none.
    pub(super) changed: Arc<watch::Sender<()>>,
    pub(super) learned: Learned,
}

/// Callers who want a place.
pub(super) struct Queue<E> {
    /// Callers that wait.
    pub(super) waiting: usize,
    /// Callers that make a connection.
    pub(super) connecting: usize,
    /// Attempts that have failed so far.
    pub(super) failures: usize,
    /// Last failure, shared by callers who waited for that attempt.
    pub(super) last_failure: Option<Arc<E>>,
}

/// Next step of a caller who wants a place.
pub(super) enum Step<T, E> {
    Take(Lease<T>),
    Connect,
    Wait,
    GiveUp(Arc<E>),
}

/// Counts a caller in the queue while it lives.
pub(super) struct Counted<'a, E> {
    queue: &'a Mutex<Queue<E>>,
    changed: &'a watch::Sender<()>,
    count: fn(&mut Queue<E>) -> &mut usize,
}

impl<'a, E> Counted<'a, E> {
    pub(super) fn new<T>(host: &'a Host<T, E>, count: fn(&mut Queue<E>) -> &mut usize) -> Self {
        *count(&mut lock(&host.queue)) += 1;
        Self::already(host, count)
    }

    /// For a caller who is counted already.
    pub(super) fn already<T>(host: &'a Host<T, E>, count: fn(&mut Queue<E>) -> &mut usize) -> Self {
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
    /// Next step of a caller who came when `failures` attempts had failed.
    ///
    /// The order of the checks is the policy. A place on a light connection is best. A failure since the caller came ends its
    /// wait, unless other connections live: their places will do, and trying again would only hammer the host. At the limit a
    /// heavy connection is better than none. Else a new one is made, but the first one alone, so that a login that fails does so
    /// once, and only while more callers wait than the connections in the making will have places for: its maker takes one.
    pub(super) fn step(&self, limits: &PoolLimits, failures: usize) -> Step<T, E> {
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

    pub(super) fn fail(&self, error: E) -> Arc<E> {
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

    /// A connection that nobody has a place on, for one caller alone.
    pub(super) fn idle(&self) -> Option<Lease<T>> {
        let slots = lock(&self.slots);
        let is_idle = |slot: &&Arc<Slot<T>>| {
            let state = lock(&slot.state);
            state.in_use == 0 && state.capacity > 0 && slot.is_usable()
        };
        // Nobody else can take it while the slots are locked.
        slots.iter().find(is_idle).map(Lease::take).filter(Lease::take_all)
    }

    pub(super) fn add(&self, connection: T, capacity: usize) -> Lease<T> {
        let learned = lock(&self.learned).filter(|(_, when)| when.elapsed() < LEARNED_FOR);
        let capacity = learned.map_or(capacity, |(learned, _)| learned.min(capacity));
        let state = SlotState { in_use: 0, capacity, afterwards: None, idle_since: Instant::now() };
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

    /// The same, for one caller alone.
    pub(super) fn add_alone(&self, connection: T, capacity: usize) -> Lease<T> {
        let lease = self.add(connection, 0);
        lock(&lease.slot.state).afterwards = Some(capacity);
        lease
    }

    pub(super) fn expire(&self, idle: Duration) -> Vec<Lease<T>> {
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
