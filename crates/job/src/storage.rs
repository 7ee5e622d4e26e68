use std::sync::Arc;

use super::archive::Archive;
use crate::log::{OutputStore, Pending};
use sshjobs_base::sync::Mutex;

/// Where a job's output is stored.
#[derive(Clone)]
pub struct Storage {
    /// Stores the output. `None` if another process stores it, or all of it is stored.
    pub output_store: Option<Arc<dyn OutputStore>>,
    /// Reads the stored output.
    pub archive: Arc<dyn Archive>,
    /// Output that is not stored yet.
    pub(super) pending: Arc<Mutex<Pending>>,
}

impl Storage {
    /// Output that is read from `archive` and written by `output_store`.
    pub fn new(archive: Arc<dyn Archive>, output_store: Option<Arc<dyn OutputStore>>) -> Self {
        Self {
            output_store,
            archive,
            pending: Arc::default(),
        }
    }
}
