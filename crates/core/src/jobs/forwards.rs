//! Forwards of ports and sockets through hosts.

use std::sync::Arc;

use super::door::AllowedHost;
use super::error::Error;
use super::jobs::Jobs;
use super::judge::{Content, On};
use crate::forward::{ForwardError, ForwardId, ForwardOptions, ForwardSpec, ForwardStatus};
use sshjobs_job::Scope;
use sshjobs_policy::Verb;

impl Jobs {
    /// Forwards a port or a socket through a host, over a connection of its own, until it is closed
    /// or the last handle is dropped. After a lost connection it is made again.
    ///
    /// Cancelling opens nothing.
    ///
    /// # Errors
    /// [`Error::Host`] and [`Error::DeniedHost`] if the host can't be used; [`Error::Forward`] if it
    /// can't be reached or nothing can listen there.
    pub async fn open_forward(
        &self,
        host: &str,
        spec: ForwardSpec,
        options: ForwardOptions,
    ) -> Result<ForwardStatus, Error> {
        let target = spec.target().map(ToString::to_string);
        let ends = spec.to_string();
        let on = On {
            target: target.as_deref(),
            content: Some(Content::Ends(&ends)),
            ..On::host(host)
        };
        let AllowedHost {
            inside,
            host: reference,
            ..
        } = self.door.act_on_host(Verb::Forward, on).await?;
        if !inside.config.forward_any_address && !spec.listen().is_local() {
            return Err(ForwardError::NotLoopback(spec.listen().clone()).into());
        }
        let opened = inside.forwards.open(&inside.hosts, reference.clone(), spec, options).await;
        let opened = opened.map_err(|error| {
            if let ForwardError::Connect(source) = error {
                let host = host.to_owned();
                Error::Connect { host, source }
            } else {
                error.into()
            }
        });
        self.door.note_connection(&reference, opened.as_ref().err());
        opened
    }

    /// The open forwards of the caller; of all callers for an admin.
    pub fn forwards(&self) -> Vec<ForwardStatus> {
        let inside = self.door.look(Verb::Forward, &"all");
        match self.door.scope() {
            Scope::Of(caller) => inside.forwards.list(Some(&caller)),
            Scope::All => {
                let mut all = inside.forwards.list(None);
                all.retain(|forward| self.door.has_host(&forward.host));
                all
            }
        }
    }

    /// Closes a forward with its streams. Returns its last status.
    ///
    /// # Errors
    /// [`Error::Forward`] if the caller has no such forward.
    pub fn close_forward(&self, id: &str) -> Result<ForwardStatus, Error> {
        let found = self.forwards().into_iter().find(|forward| forward.id.to_string() == id);
        let found = found.ok_or_else(|| ForwardError::Unknown(id.to_owned()))?;
        // Not judged: the policy may not allow the forward any more, and closing it must stay possible.
        let inside = self.door.look(Verb::Forward, &found.host);
        Ok(inside.forwards.close(id)?)
    }

    /// Waits until a forward is closed.
    pub async fn forward_closed(&self, id: &ForwardId) {
        self.door.look(Verb::Forward, id).forwards.closed(id).await;
    }
}

impl From<ForwardError> for Error {
    fn from(error: ForwardError) -> Self {
        Self::Forward(Arc::new(error))
    }
}
