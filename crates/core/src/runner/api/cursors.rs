//! Cursors of named readers. They are in the store, so that they outlive this process and are the
//! same in all processes. A job that is not stored keeps its own.

use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::runner::Runner;
use crate::admission::ReadOutput;
use crate::runner::seen_job::Permitted;
use sshjobs_job::{CursorMove, CursorName, Job, Moved};
use sshjobs_output::LineNo;
use sshjobs_store::{Store, StoreError};

impl Runner {
    /// A reader's cursor. A new reader starts before the first line.
    ///
    /// # Errors
    /// [`StoreError`] if the store can't be read.
    pub async fn cursor(
        &self,
        job: Permitted<'_, ReadOutput>,
        name: &CursorName,
    ) -> Result<LineNo, StoreError> {
        let Some(store) = self.store_of(&job) else {
            return Ok(job.cursors.cursor(name));
        };
        let id = job.id.clone();
        let name = name.clone();
        let read = spawn_blocking(move || store.cursor(&id, &name)).await;
        read.unwrap_or_else(|error| Err(StoreError::Records(error.to_string())))
    }

    /// Moves a reader's cursor.
    ///
    /// # Errors
    /// [`StoreError`] if the store can't be written. The cursor may have moved then, if only the store's answer was lost.
    pub async fn move_cursor(
        &self,
        job: Permitted<'_, ReadOutput>,
        name: &CursorName,
        step: CursorMove,
    ) -> Result<Moved, StoreError> {
        let Some(store) = self.store_of(&job) else {
            return Ok(job.cursors.move_to(name, step));
        };
        let id = job.id.clone();
        let name = name.clone();
        let moved = spawn_blocking(move || store.move_cursor(&id, &name, step)).await;
        moved.unwrap_or_else(|error| Err(StoreError::Records(error.to_string())))
    }

    /// The store, if it has this job.
    fn store_of(&self, job: &Job) -> Option<Arc<dyn Store>> {
        let storing = self.shared.storing.as_ref()?;
        job.coverage().map(|_| Arc::clone(&storing.store))
    }
}
