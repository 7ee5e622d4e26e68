//! Decides the next step of a caller that wants a slot: take one, connect, wait, or give up.
//! Does no I/O and never waits; `pool.rs` connects or waits as the step says.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::slot::{Learned, Slot, SlotState};
use super::{Lease, PoolLimits, Pooled};
use sshjobs_base::lock::lock;

/// Maximum handshakes with one host at the same time. OpenSSH's MaxStartups starts to refuse at 10.
const HANDSHAKES: usize = 4;
/// Time for which a refusal also limits new connections. The server may only have been slow to free
/// sessions.
const LEARNED_FOR: Duration = Duration::from_secs(60);

/// A host's connections.
pub(super) struct PooledHost<T, E> {
    pub(super) slots: Mutex<Vec<Arc<Slot<T>>>>,
    pub(super) queue: Mutex<Queue<E>>,
    /// Changes when a slot may have become free, or an attempt to connect has ended.
    pub(super) changed: Arc<watch::Sender<()>>,
    pub(super) learned: Learned,
}

/// Callers that want a slot.
pub(super) struct Queue<E> {
    /// Callers that wait.
    pub(super) waiting: usize,
    /// Callers that are connecting.
    pub(super) connecting: usize,
    /// Number of failed attempts so far.
    pub(super) failures: usize,
    /// Last failure, shared by callers that waited for that attempt.
    pub(super) last_failure: Option<Arc<E>>,
}

/// Next step of a caller that wants a slot.
pub(super) enum ConnectStep<T, E> {
    Take(Lease<T>),
    Connect,
    Wait,
    GiveUp(Arc<E>),
}

/// The part of a caller in the queue.
#[derive(Clone, Copy, Debug)]
pub(super) enum QueuedAs {
    Waiting,
    Connecting,
}

impl<E> Queue<E> {
    /// The number of callers that do this.
    fn count(&mut self, role: QueuedAs) -> &mut usize {
        match role {
            QueuedAs::Waiting => &mut self.waiting,
            QueuedAs::Connecting => &mut self.connecting,
        }
    }
}

/// A caller that is counted in the queue. Dropping it takes the count back.
pub(super) struct QueuedCaller<'a, E> {
    queue: &'a Mutex<Queue<E>>,
    changed: &'a watch::Sender<()>,
    role: QueuedAs,
}

impl<'a, E> QueuedCaller<'a, E> {
    /// Counts a caller.
    pub(super) fn enter<T>(host: &'a PooledHost<T, E>, role: QueuedAs) -> Self {
        *lock(&host.queue).count(role) += 1;
        Self::counted(host, role)
    }

    /// A caller that [`step`](PooledHost::step) has counted.
    pub(super) fn counted<T>(host: &'a PooledHost<T, E>, role: QueuedAs) -> Self {
        Self {
            queue: &host.queue,
            changed: &host.changed,
            role,
        }
    }
}

impl<E> Drop for QueuedCaller<'_, E> {
    fn drop(&mut self) {
        *lock(self.queue).count(self.role) -= 1;
        self.changed.send_modify(|()| ());
    }
}

/// The connections on which a caller accepts a slot.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Acceptable {
    /// Those that are neither heavy nor worn out.
    Good,
    /// All on which channels can be opened.
    Any,
}

impl<T, E> Default for PooledHost<T, E> {
    fn default() -> Self {
        let queue = Queue {
            waiting: 0,
            connecting: 0,
            failures: 0,
            last_failure: None,
        };
        Self {
            slots: Mutex::default(),
            queue: Mutex::new(queue),
            changed: Arc::default(),
            learned: Arc::default(),
        }
    }
}

impl<T: Pooled, E> PooledHost<T, E> {
    /// Next step of a caller that arrived when `failures` attempts had failed.
    ///
    /// The order of the checks is the policy. A slot on a good connection is best. A failure since
    /// the caller arrived ends its wait, unless other connections live: their slots are good
    /// enough, and another attempt would only burden the host. At the limit a heavy or
    /// worn-out connection is better than none. Otherwise a new one is made. The first is made alone, so that a failing
    /// login fails only once. Others are made only while more callers wait than the connections in
    /// progress will have free slots. Each connecting caller takes one slot of its own connection.
    pub(super) fn step(&self, limits: &PoolLimits, failures: usize) -> ConnectStep<T, E> {
        if let Some(lease) = self.place(Acceptable::Good) {
            return ConnectStep::Take(lease);
        }
        // A suspect connection does not count against the limit, so that it can be replaced.
        let live = lock(&self.slots).iter().filter(|slot| slot.is_usable()).count();
        let mut queue = lock(&self.queue);
        if queue.failures > failures {
            return match (self.place(Acceptable::Any), &queue.last_failure) {
                (Some(lease), _) => ConnectStep::Take(lease),
                (None, Some(error)) if live == 0 => ConnectStep::GiveUp(Arc::clone(error)),
                // Other connections exist, and their slots are good enough.
                (None, _) => ConnectStep::Wait,
            };
        }
        if live + queue.connecting >= limits.connections_per_host {
            return self.place(Acceptable::Any).map_or(ConnectStep::Wait, ConnectStep::Take);
        }
        let handshakes = if live == 0 { 1 } else { HANDSHAKES };
        // The caller that connects takes one slot itself. `waiting` includes this caller.
        let promised = queue.connecting * limits.channels_per_connection.saturating_sub(1);
        if queue.connecting >= handshakes || queue.waiting <= promised {
            return ConnectStep::Wait;
        }
        // Counted under the lock, so that no other caller decides the same meanwhile.
        queue.connecting += 1;
        ConnectStep::Connect
    }

    pub(super) fn fail(&self, error: E) -> Arc<E> {
        let error = Arc::new(error);
        let mut queue = lock(&self.queue);
        queue.failures += 1;
        queue.last_failure = Some(Arc::clone(&error));
        error
    }

    /// A slot on a connection with a free one, the fullest first, so that idle ones can expire.
    fn place(&self, acceptable: Acceptable) -> Option<Lease<T>> {
        let mut slots = lock(&self.slots);
        slots.retain(|slot| !slot.connection.is_closed() && !slot.can_be_closed());
        slots
            .iter()
            .filter(|slot: &&Arc<Slot<T>>| {
                let state = lock(&slot.state);
                state.in_use < state.capacity
                    && slot.is_usable()
                    && (acceptable == Acceptable::Any || slot.is_good())
            })
            .max_by_key(|slot| (slot.is_good(), lock(&slot.state).in_use))
            .map(Lease::take)
    }

    /// An unused connection, for one caller alone.
    pub(super) fn idle(&self) -> Option<Lease<T>> {
        let slots = lock(&self.slots);
        // No other caller can take it while the slots are locked.
        slots
            .iter()
            .find(|slot: &&Arc<Slot<T>>| {
                let state = lock(&slot.state);
                state.in_use == 0
                    && state.capacity > 0
                    && slot.is_usable()
                    && !slot.connection.is_worn_out()
            })
            .map(Lease::take)
            .filter(Lease::take_all)
    }

    pub(super) fn add(&self, connection: T, capacity: usize) -> Lease<T> {
        let learned = lock(&self.learned).filter(|(_, when)| when.elapsed() < LEARNED_FOR);
        let capacity = learned.map_or(capacity, |(learned, _)| learned.min(capacity));
        let state = SlotState {
            in_use: 0,
            capacity,
            afterwards: None,
            idle_since: Instant::now(),
        };
        let slot = Arc::new(Slot {
            connection,
            state: Mutex::new(state),
            changed: Arc::clone(&self.changed),
            learned: Arc::clone(&self.learned),
        });
        // Before the slot is listed, so that the caller that has connected gets its slot.
        let lease = Lease::take(&slot);
        lock(&self.slots).push(slot);
        lease
    }

    /// Adds a connection for one caller alone.
    pub(super) fn add_alone(&self, connection: T, capacity: usize) -> Lease<T> {
        // Added without capacity, so that no other caller takes a slot before the next line.
        let lease = self.add(connection, 0);
        lock(&lease.slot.state).afterwards = Some(capacity);
        lease
    }

    pub(super) fn expire(&self, idle: Duration) -> Vec<Lease<T>> {
        let mut slots = lock(&self.slots);
        let (expired, kept) =
            slots.drain(..).filter(|slot| !slot.connection.is_closed()).partition(|slot| {
                if slot.can_be_closed() {
                    return true;
                }
                let state = lock(&slot.state);
                state.in_use == 0 && state.idle_since.elapsed() >= idle
            });
        *slots = kept;
        let expired: Vec<Arc<Slot<T>>> = expired;
        expired.iter().map(Lease::take).collect()
    }
}
