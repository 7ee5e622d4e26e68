//! Each verb, performed in this process or by a server.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures_util::StreamExt;
use tokio::time::Instant;

use super::client::ServerClient;
use super::running::Running;
use super::session::JobSession;
use crate::{
    ApprovalEntry, ApprovalsReply, ApprovalsRequest, Code, CommandRequest, Error, ExportFormat,
    Group, JobEntry, NotificationsReply, Repeat, Service, SessionRequest, VoteRequest, WaitRequest,
    WriteRequest, for_each_verb,
};

/// The verbs, in this process or on a server.
#[derive(Clone)]
pub enum Api {
    /// In this process.
    Here(Service),
    /// On a server.
    There(Arc<ServerClient>),
}

macro_rules! verbs {
    ($($name:ident: $request:ty => $reply:ty, $role:ident, $repeat:ident, $summary:literal;)*) => {
        impl Api {
            $(#[doc = $summary]
            pub async fn $name(&self, request: $request) -> Result<$reply, Error> {
                match self {
                    Self::Here(service) => service.$name(request).await,
                    Self::There(client) => client.call(stringify!($name), &request, Repeat::$repeat).await,
                }
            })*
        }
    };
}

for_each_verb!(verbs);

/// Longest id of an approval, in bytes.
const LONGEST_ID: usize = 64;
/// Maximum bytes of one write.
const WRITE_BYTES: usize = 512 << 10;

impl Api {
    /// Exports a job's output. `take` gets it in pieces, and returns false to stop.
    pub async fn export(
        &self,
        id: &str,
        format: ExportFormat,
        mut take: impl FnMut(Bytes) -> bool,
    ) -> Result<(), Error> {
        match self {
            Self::Here(service) => {
                let mut pages = pin!(service.export(id, format).await?);
                while let Some(page) = pages.next().await {
                    if !take(page?) {
                        break;
                    }
                }
                Ok(())
            }
            Self::There(client) => {
                let path = format!("jobs/{id}/export?format={}", format.as_str());
                client.download(&path, take).await
            }
        }
    }

    /// Lists approvals.
    pub async fn approvals(&self, request: ApprovalsRequest) -> Result<ApprovalsReply, Error> {
        match self {
            Self::Here(service) => service.approvals(request).await,
            Self::There(client) if request.all => client.read("approvals?all=true").await,
            Self::There(client) => client.read("approvals").await,
        }
    }

    /// Lists notifications.
    pub async fn notifications(&self) -> Result<NotificationsReply, Error> {
        match self {
            Self::Here(service) => service.notifications().await,
            Self::There(client) => client.read("notifications").await,
        }
    }

    /// Answers an approval.
    pub async fn vote(&self, id: &str, request: VoteRequest) -> Result<ApprovalEntry, Error> {
        match self {
            Self::Here(service) => service.vote(id, request).await,
            Self::There(client) => {
                let is_id = (1..=LONGEST_ID).contains(&id.len())
                    && id.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
                if !is_id {
                    let shown: String = id.chars().take(LONGEST_ID).collect();
                    let message = format!("{shown:?} is not the id of an approval");
                    return Err(Error::invalid(message, "`sshjobs approvals` lists the ids"));
                }
                client.call(&format!("approvals/{id}"), &request, Repeat::Never).await
            }
        }
    }

    /// Starts a command whose output is followed byte by byte. Its stdin is open.
    pub async fn follow(&self, request: CommandRequest) -> Result<Running, Error> {
        match self {
            Self::Here(service) => Ok(Running::Here {
                service: service.clone(),
                follow: service.follow(request).await?,
                redraw: Vec::new(),
            }),
            Self::There(client) => {
                let request = SessionRequest::Start(Box::new(request));
                Ok(Running::There(JobSession::start(client, &request).await?))
            }
        }
    }

    /// Joins the terminal of a job that runs: its screen, then what it prints from now on.
    pub async fn attach(&self, job_id: &str) -> Result<Running, Error> {
        match self {
            Self::Here(service) => {
                let (redraw, follow) = service.attach(job_id).await?;
                Ok(Running::Here {
                    service: service.clone(),
                    follow,
                    redraw,
                })
            }
            Self::There(client) => {
                let request = SessionRequest::Attach(job_id.to_owned());
                Ok(Running::There(JobSession::start(client, &request).await?))
            }
        }
    }

    /// The current state of a job.
    pub async fn entry(&self, id: &str) -> Result<JobEntry, Error> {
        Ok(self.entry_and_groups(id).await?.0)
    }

    /// The current state of a job and, for a fleet that has ended, its members grouped by outcome.
    pub async fn entry_and_groups(&self, id: &str) -> Result<(JobEntry, Vec<Group>), Error> {
        let request = WaitRequest {
            wait_ms: Some(0),
            ..WaitRequest::new(vec![id.to_owned()])
        };
        let mut reply = self.wait(request).await?;
        let entry = reply.jobs.pop().ok_or_else(|| {
            Error::new(
                Code::UnknownJob,
                format!("no job has the id {id:?}"),
                "look with `sshjobs jobs`",
            )
        })?;
        Ok((entry, reply.groups))
    }

    /// Writes bytes to a job's stdin. Waits about `patience` for a command that does not read.
    pub async fn write_bytes(
        &self,
        id: &str,
        mut data: &[u8],
        patience: Duration,
    ) -> Result<(), Error> {
        // In one piece: only the wire limits the length of a write.
        if let Self::Here(service) = self {
            return Ok(service.library().job(id).await?.write(data, patience).await?);
        }
        let deadline = Instant::now() + patience;
        while !data.is_empty() {
            let (piece, _) = data.split_at(data.len().min(WRITE_BYTES));
            let encoded = BASE64_STANDARD.encode(piece);
            let request = WriteRequest {
                data_base64: Some(encoded.into()),
                ..WriteRequest::new(id)
            };
            let written = match self.write(request).await {
                Ok(_) => piece.len(),
                // The server waits ten seconds before it answers this, so the loop does not spin.
                Err(error) if error.code == Code::Backpressure && Instant::now() < deadline => {
                    error.bytes_written.unwrap_or(0)
                }
                Err(error) => return Err(error),
            };
            data = data.get(written..).unwrap_or_default();
        }
        Ok(())
    }

    /// Ends the jobs that this process has started. A server's jobs continue.
    pub async fn shutdown(&self) {
        if let Self::Here(service) = self {
            service.shutdown().await;
        }
    }
}
