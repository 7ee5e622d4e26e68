//! Which replica of a cluster performs a call, and the call there.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::Error;
use crate::{PassedCall, Service, not_passed_on};
use sshjobs_core::jobs::{self, HostPlace};

impl Service {
    /// The replica that must perform a call for a host. `None` if it is this one.
    pub async fn replica_of_host(&self, host: &str) -> Result<Option<String>, Error> {
        if self.pass_on.is_none() || host.is_empty() {
            return Ok(None);
        }
        Ok(match self.jobs.place_of_host(host).await? {
            HostPlace::Here => None,
            HostPlace::At(replica) => Some(replica),
        })
    }

    /// The replica that must perform a call for a job. `None` if it is this one, or if the job has
    /// ended with its replica.
    pub async fn replica_of_job(&self, job_id: &str) -> Option<String> {
        self.pass_on.as_ref()?;
        self.jobs.replica_of_job(job_id).await
    }

    /// Tells all replicas that a client has cancelled a task.
    pub async fn cancel_task_everywhere(&self, task: &str) -> Result<(), Error> {
        if let Some(peers) = self.jobs.peers() {
            peers.cancel_task(task).await.map_err(jobs::Error::from)?;
        }
        Ok(())
    }

    /// Whether a client has cancelled a task at another replica.
    pub async fn is_task_cancelled_elsewhere(&self, task: &str) -> Result<bool, Error> {
        let Some(peers) = self.jobs.peers() else { return Ok(false) };
        Ok(peers.is_task_cancelled(task).await.map_err(jobs::Error::from)?)
    }

    /// The other replicas that are there now, if this one passes calls on.
    pub(super) async fn other_replicas(&self) -> Result<Vec<String>, Error> {
        match self.jobs.peers() {
            Some(peers) if self.pass_on.is_some() => {
                Ok(peers.others().await.map_err(jobs::Error::from)?)
            }
            Some(_) | None => Ok(Vec::new()),
        }
    }

    /// Performs a call at another replica.
    pub(super) async fn perform_at<Request: Serialize, Reply: DeserializeOwned>(
        &self,
        replica: &str,
        verb: &'static str,
        request: &Request,
    ) -> Result<Reply, Error> {
        let Some(pass_on) = &self.pass_on else {
            return Err(not_passed_on(replica, &"this replica passes nothing on"));
        };
        let passed = PassedCall {
            caller: self.jobs.caller().clone(),
            rights: self.jobs.rights().clone(),
            address: self.jobs.context().address,
            approval_wait: self.jobs.context().approval_wait,
            verb,
            request: serde_json::to_value(request).expect("a request is plain data"),
        };
        let reply = pass_on.call(replica, passed).await?;
        serde_json::from_value(reply).map_err(|error| not_passed_on(replica, &error))
    }
}
