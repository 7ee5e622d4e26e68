//! Forwards of ports and sockets through hosts.

use std::sync::Arc;

use super::error::Error;
use super::jobs::Jobs;
use crate::admission::{CallContent, HostAct};
use crate::forward::{ForwardError, ForwardId, ForwardOptions, ForwardSpec, ForwardStatus};
use sshjobs_job::Scope;

impl Jobs {
    /// Forwards a port or a socket through a host, over a connection of its own, until it is closed
    /// or the last handle is dropped. After a lost connection it is made again.
    ///
    /// Cancelling opens nothing.
    ///
    /// # Errors
    /// [`Error::Refused`] if the host can't be used; [`Error::Forward`] if it
    /// can't be reached or nothing can listen there.
    pub async fn open_forward(
        &self,
        host: &str,
        spec: ForwardSpec,
        options: ForwardOptions,
    ) -> Result<ForwardStatus, Error> {
        let target = spec.target().map(ToString::to_string);
        let ends = spec.to_string();
        let on = HostAct {
            target: target.as_deref(),
            content: Some(CallContent::ForwardEnds(&ends)),
            ..HostAct::host(host)
        };
        let permit = self.door.admission.admit_forward(on).await?;
        let inside = &self.door.inside;
        if !inside.config.forward_any_address && !spec.listen().is_local() {
            return Err(ForwardError::NotLoopback(spec.listen().clone()).into());
        }
        let opened = inside.forwards.open(&inside.hosts, &permit, spec, options).await;
        let opened = opened.map_err(|error| {
            if let ForwardError::Connect(source) = error {
                let host = host.to_owned();
                Error::Connect { host, source }
            } else {
                error.into()
            }
        });
        self.door.note_connection(permit.host(), opened.as_ref().err());
        opened
    }

    /// The open forwards of the caller; of all callers for an admin.
    pub fn forwards(&self) -> Vec<ForwardStatus> {
        let inside = &self.door.inside;
        match self.context().scope() {
            Scope::Of(caller) => inside.forwards.list(Some(&caller)),
            Scope::All => {
                let mut all = inside.forwards.list(None);
                all.retain(|forward| self.door.admission.has_host(&forward.host));
                all
            }
        }
    }

    /// Closes a forward with its streams. Returns its last status.
    ///
    /// # Errors
    /// [`Error::Forward`] if the caller has no such forward.
    pub fn close_forward(&self, id: &str) -> Result<ForwardStatus, Error> {
        if !self.forwards().iter().any(|forward| forward.id.to_string() == id) {
            return Err(ForwardError::Unknown(id.to_owned()).into());
        }
        // Not judged: the policy may not allow the forward any more, and closing it must stay possible.
        Ok(self.door.inside.forwards.close(id)?)
    }

    /// Waits until a forward is closed.
    pub async fn forward_closed(&self, id: &ForwardId) {
        self.door.inside.forwards.closed(id).await;
    }
}

impl From<ForwardError> for Error {
    fn from(error: ForwardError) -> Self {
        Self::Forward(Arc::new(error))
    }
}
