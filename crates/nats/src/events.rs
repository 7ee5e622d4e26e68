//! The queue of what other replicas do.

use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;

use sshjobs_base::lock::lock;
use sshjobs_store::StoreEvent;

/// The sending side of the queue. A cheap handle.
#[derive(Clone, Default)]
pub(super) struct EventQueue(Arc<Mutex<Option<mpsc::Sender<StoreEvent>>>>);

/// Maximum events that wait to be handled.
const QUEUE: usize = 4096;

impl EventQueue {
    /// The receiving side. Events before the first call are dropped.
    pub(super) fn receive(&self) -> mpsc::Receiver<StoreEvent> {
        let (sender, events) = mpsc::channel(QUEUE);
        *lock(&self.0) = Some(sender);
        events
    }

    pub(super) fn send(&self, event: StoreEvent) {
        if let Some(sender) = &*lock(&self.0)
            && sender.try_send(event).is_err()
        {
            // Jobs of a lost host are noticed when their output is refused, and removed ones when
            // they are swept.
            tracing::warn!("an event of the cluster was dropped, because too many wait");
        }
    }
}
