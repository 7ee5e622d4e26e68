//! Where a job's output is stored.

use std::sync::Arc;

use super::output_store::OutputStore;
use super::queue::OutputQueue;
use crate::archive::Archive;
use sshjobs_base::sync::{Mutex, lock};

/// Where a job's output is stored.
#[derive(Clone)]
pub struct Storage {
    /// Stores the output. `None` if another process stores it, or all of it is stored.
    pub output_store: Option<Arc<dyn OutputStore>>,
    /// Reads the stored output.
    pub archive: Arc<dyn Archive>,
    /// Output that is not stored yet.
    pub(crate) queue: Arc<Mutex<OutputQueue>>,
}

impl Storage {
    /// Output that is read from `archive` and written by `output_store`.
    pub fn new(archive: Arc<dyn Archive>, output_store: Option<Arc<dyn OutputStore>>) -> Self {
        Self {
            output_store,
            archive,
            queue: Arc::default(),
        }
    }

    /// Whether a batch is being stored, or is stored and not yet shown.
    pub(crate) fn is_in_flight(&self) -> bool {
        lock(&self.queue).is_in_flight()
    }
}
