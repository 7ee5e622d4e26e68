use std::sync::{Arc, Mutex};

use tokio::sync::watch;
use tokio::time::Instant;

use super::Pooled;
use crate::lock::lock;

/// How many channels a connection of a host took when the server refused another one, and when that was.
pub(super) type Learned = Arc<Mutex<Option<(usize, Instant)>>>;

/// A connection in the pool.
pub(super) struct Slot<T> {
    pub(super) connection: T,
    pub(super) state: Mutex<SlotState>,
    /// Who waits for a place is told when one is free.
    pub(super) changed: Arc<watch::Sender<()>>,
    pub(super) learned: Learned,
}

pub(super) struct SlotState {
    pub(super) in_use: usize,
    /// How many channels it takes; less than planned when the server has refused one.
    pub(super) capacity: usize,
    /// While somebody has it alone: how many channels it takes afterwards.
    pub(super) afterwards: Option<usize>,
    pub(super) idle_since: Instant,
}

/// The right to open one channel on a connection. Dropping it gives the place back.
pub struct Lease<T> {
    pub(super) slot: Arc<Slot<T>>,
}

impl<T: Pooled> Slot<T> {
    pub(super) fn is_usable(&self) -> bool {
        !self.connection.is_closed() && !self.connection.is_suspect()
    }
}

impl<T> Lease<T> {
    /// Lets nobody else have a place on the connection until this one is given back; false when somebody has one.
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
        state.afterwards = None;
        *lock(&self.slot.learned) = Some((state.capacity.max(1), Instant::now()));
        state.capacity == 0
    }
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
        drop(state);
        self.slot.changed.send_modify(|()| ());
    }
}
