//! All forwards of the process.

use std::sync::{Arc, Mutex};

use tokio::task::JoinSet;

use super::error::ForwardError;
use super::forward::{Forward, ForwardOptions};
use super::spec::ForwardSpec;
use super::status::{ForwardId, ForwardStatus};
use crate::admission::{OpenForward, Permit};
use crate::hosts::Hosts;
use sshjobs_base::lock::lock;
use sshjobs_job::Caller;

/// All forwards of the process. Dropping it closes them.
#[derive(Default)]
pub struct Forwards {
    open: Arc<Mutex<Vec<Arc<Forward>>>>,
    tasks: Mutex<JoinSet<()>>,
}

/// Maximum forwards of a caller.
const MOST_OF_CALLER: usize = 32;

impl Forwards {
    /// Connects to the host, listens, and forwards until it is closed.
    ///
    /// Cancelling opens nothing.
    ///
    /// # Errors
    /// [`ForwardError`].
    pub async fn open(
        &self,
        hosts: &Arc<Hosts>,
        permit: &Permit<OpenForward>,
        spec: ForwardSpec,
        options: ForwardOptions,
    ) -> Result<ForwardStatus, ForwardError> {
        let host = permit.host().clone();
        self.check_room(&host.caller)?;
        let id = self.unused_id();
        let opened = Forward::open(id, Arc::clone(hosts), host, spec, options).await?;
        let forward = Arc::clone(&opened.forward);
        // Again: another call may have taken the last room meanwhile.
        self.check_room(&forward.host().caller)?;
        lock(&self.open).push(Arc::clone(&forward));
        let mut tasks = lock(&self.tasks);
        while tasks.try_join_next().is_some() {}
        let ending = Arc::clone(&forward);
        let open = Arc::clone(&self.open);
        tasks.spawn(async move {
            // Also if it panics.
            let _closing = ending.closing.clone().drop_guard();
            opened.run().await;
            lock(&open).retain(|forward| forward.id() != ending.id());
        });
        Ok(forward.status())
    }

    /// The forwards of a caller, or of all. Closed ones are not listed.
    pub fn list(&self, caller: Option<&Caller>) -> Vec<ForwardStatus> {
        let mut open = lock(&self.open);
        open.retain(|forward| !forward.closing.is_cancelled());
        open.iter()
            .filter(|forward| caller.is_none_or(|caller| forward.host().caller == *caller))
            .map(|forward| forward.status())
            .collect()
    }

    /// Closes a forward with its streams. Returns its last status.
    ///
    /// # Errors
    /// [`ForwardError::Unknown`].
    pub fn close(&self, id: &str) -> Result<ForwardStatus, ForwardError> {
        let mut open = lock(&self.open);
        open.retain(|forward| !forward.closing.is_cancelled());
        let found = open.iter().position(|forward| forward.id().as_str() == id);
        let found = found.ok_or_else(|| ForwardError::Unknown(id.to_owned()))?;
        let forward = open.remove(found);
        forward.closing.cancel();
        Ok(forward.status())
    }

    /// Waits until a forward is closed.
    pub async fn closed(&self, id: &ForwardId) {
        let found = lock(&self.open).iter().find(|forward| forward.id() == id).cloned();
        if let Some(forward) = found {
            forward.closing.cancelled().await;
        }
    }

    /// Closes all forwards.
    pub async fn shut_down(&self) {
        for forward in lock(&self.open).drain(..) {
            forward.closing.cancel();
        }
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        while tasks.join_next().await.is_some() {}
    }

    fn unused_id(&self) -> ForwardId {
        let open = lock(&self.open);
        let mut ids = std::iter::repeat_with(ForwardId::random);
        let unused = ids.find(|id| open.iter().all(|forward| forward.id() != id));
        unused.expect("the ids don't end")
    }

    fn check_room(&self, caller: &Caller) -> Result<(), ForwardError> {
        if self.list(Some(caller)).len() >= MOST_OF_CALLER {
            return Err(ForwardError::TooMany {
                most: MOST_OF_CALLER,
            });
        }
        Ok(())
    }
}
