//! A connection in the pool, and the leases on it.

use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::time::Instant;

use super::Pooled;
use sshjobs_base::lock::lock;

/// Number of channels that a connection to the host had when the server refused one more, and the
/// time of that refusal.
pub(super) type Learned = Arc<Mutex<Option<(usize, Instant)>>>;

/// A connection in the pool.
pub(super) struct Slot<T> {
    pub(super) connection: T,
    pub(super) state: Mutex<SlotState>,
    /// Wakes callers when a slot is free.
    pub(super) changed: Arc<watch::Sender<()>>,
    pub(super) learned: Learned,
}

pub(super) struct SlotState {
    pub(super) in_use: usize,
    /// Maximum channels; lower than planned if the server has refused one.
    pub(super) capacity: usize,
    /// Capacity to restore when the caller that has the connection alone has returned it. `None`
    /// while callers may share it.
    pub(super) afterwards: Option<usize>,
    pub(super) idle_since: Instant,
}

/// The right to open one channel on a connection. Dropping it frees the slot.
pub struct Lease<T> {
    pub(super) slot: Arc<Slot<T>>,
}

impl<T: Pooled> Slot<T> {
    pub(super) fn is_usable(&self) -> bool {
        !self.connection.is_closed() && !self.connection.is_suspect()
    }

    /// Whether the connection is neither heavy nor worn out.
    pub(super) fn is_good(&self) -> bool {
        !self.connection.is_heavy() && !self.connection.is_worn_out()
    }

    /// Whether the connection can be closed: no caller uses it, and none will.
    pub(super) fn can_be_closed(&self) -> bool {
        let state = lock(&self.state);
        // While one caller has it alone its capacity is 0, too, but then it is in use.
        state.in_use == 0 && (state.capacity == 0 || self.connection.is_worn_out())
    }
}

impl<T> Lease<T> {
    /// Reserves the whole connection until this lease is returned. Returns false if another caller
    /// has a slot.
    pub(super) fn take_all(&self) -> bool {
        let mut state = lock(&self.slot.state);
        let is_only = state.in_use == 1;
        if is_only {
            state.afterwards = Some(std::mem::take(&mut state.capacity));
        }
        is_only
    }

    pub(super) fn take(slot: &Arc<Slot<T>>) -> Self {
        lock(&slot.state).in_use += 1;
        Self {
            slot: Arc::clone(slot),
        }
    }

    /// The connection.
    pub fn connection(&self) -> &T {
        &self.slot.connection
    }

    /// Whether no other caller has a slot on the connection.
    pub fn is_only(&self) -> bool {
        lock(&self.slot.state).in_use == 1
    }

    /// Notes that the server refused a channel. This connection gets no more channels than it has,
    /// and for a minute new connections get at most that number, but at least one.
    pub fn note_refusal(self) -> RefusedChannels {
        let mut state = lock(&self.slot.state);
        // This lease is counted, but has got no channel.
        state.capacity = state.in_use - 1;
        state.afterwards = None;
        // At least one: with 0, each new connection would be discarded after its first lease.
        *lock(&self.slot.learned) = Some((state.capacity.max(1), Instant::now()));
        if state.capacity == 0 {
            RefusedChannels::EveryChannel
        } else {
            RefusedChannels::OneMore
        }
    }
}

/// The channels that a server still allows on a connection after it refused one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusedChannels {
    /// The connection has no channel: the server allows none at all, at least now.
    EveryChannel,
    /// The connection has other channels, and gets no more.
    OneMore,
}

impl<T> Drop for Lease<T> {
    fn drop(&mut self) {
        let mut state = lock(&self.slot.state);
        state.in_use -= 1;
        if state.in_use == 0
            && let Some(capacity) = state.afterwards.take()
        {
            state.capacity = capacity;
        }
        state.idle_since = Instant::now();
        // Unlocked first: a caller that wakes locks it.
        drop(state);
        self.slot.changed.send_modify(|()| ());
    }
}
