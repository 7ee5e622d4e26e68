//! The verb forward: ports and sockets that are forwarded through hosts.

use std::time::{Duration, SystemTime};

use futures_util::future::join_all;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Service;
use crate::error::{Code, Error};
use crate::leave_out::is_zero;
use sshjobs_core::jobs::{
    BadEndpoint, Endpoint, ForwardOptions, ForwardSpec, ForwardState, ForwardStatus,
};

/// Forward ports through hosts.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ForwardRequest {
    /// What to do.
    #[serde(default)]
    pub action: ForwardAction,
    /// Host from ssh_hosts.
    #[serde(default)]
    pub host: Option<String>,
    /// PORT, ADDRESS:PORT or /SOCKET. Default: a free port of 127.0.0.1.
    #[serde(default)]
    pub listen: Option<String>,
    /// HOST:PORT or /SOCKET on the other side. Without one: a SOCKS5 proxy.
    #[serde(default)]
    pub target: Option<String>,
    /// Listen on the host, and connect from here.
    #[serde(default)]
    pub reverse: bool,
    /// Close it after so many seconds without a connection.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub idle_s: Option<u64>,
    /// Forward to close.
    #[serde(default)]
    pub id: Option<String>,
}

/// What to do with forwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[schemars(inline)]
pub enum ForwardAction {
    /// Open a forward.
    Open,
    /// List the open forwards.
    #[default]
    List,
    /// Close a forward.
    Close,
}

/// The forward that was opened or closed, or all.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct ForwardReply {
    /// The forwards.
    pub forwards: Vec<ForwardEntry>,
}

/// A forward.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct ForwardEntry {
    /// Id, to close it.
    pub id: String,
    /// The host.
    pub host: String,
    /// Where it listens, with the port that was chosen.
    pub listen: String,
    /// In a cluster: the machine that listens, which is that of the replica that has the host.
    // Not in the tool's schema, which costs every client tokens: few have a cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(skip)]
    pub machine: Option<String>,
    /// Where connections lead. Absent for a SOCKS5 proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<String>,
    /// Whether it listens on the host.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reverse: bool,
    /// open, reconnecting or closed.
    pub state: String,
    /// Since when (ISO 8601, UTC).
    pub since: String,
    /// Connections that are open now.
    pub open: usize,
    /// All connections so far.
    pub connections: u64,
    /// Bytes to the target.
    pub bytes_out: u64,
    /// Bytes from the target.
    pub bytes_in: u64,
    /// Failed connections.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub errors: u64,
    /// The last failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
}

/// Seconds without a connection after which a forward of a caller over HTTP is closed, if the
/// caller names none: nobody else would close it.
const IDLE_OVER_HTTP: u64 = 3600;

impl Service {
    /// Opens, lists or closes forwards. Cancelling opens nothing.
    pub async fn forward(&self, request: ForwardRequest) -> Result<ForwardReply, Error> {
        if let Some(replica) =
            self.replica_of_host(request.host.as_deref().unwrap_or_default()).await?
        {
            return self.perform_at(&replica, "forward", &request).await;
        }
        if request.idle_s == Some(0) {
            let hint = "omit it to keep the forward open";
            return Err(Error::invalid("idle_s must be at least 1", hint));
        }
        let forwards = match request.action {
            ForwardAction::List => self.list_forwards(&request).await?,
            ForwardAction::Close => {
                let id = request.id.as_deref().ok_or_else(|| missing("id"))?;
                if let Some(replica) = self.replica_of_forward(id).await? {
                    return self.perform_at(&replica, "forward", &request).await;
                }
                let mut closed = self.forward_entry(&self.jobs.close_forward(id)?);
                "closed".clone_into(&mut closed.state);
                vec![closed]
            }
            ForwardAction::Open => {
                let host = request.host.as_deref().ok_or_else(|| missing("host"))?;
                let spec = self.forward_spec(&request)?;
                let idle_s = match request.idle_s {
                    None if !self.is_for_this_machine() => Some(IDLE_OVER_HTTP),
                    idle_s => idle_s,
                };
                let options = ForwardOptions {
                    idle: idle_s.map(Duration::from_secs),
                };
                let opened = self.jobs.open_forward(host, spec, options).await;
                let opened = opened.map_err(|error| Error::from(error).about(host))?;
                vec![self.forward_entry(&opened)]
            }
        };
        Ok(ForwardReply { forwards })
    }

    /// Forwards of this replica and of all others.
    async fn list_forwards(&self, request: &ForwardRequest) -> Result<Vec<ForwardEntry>, Error> {
        let own = self.jobs.forwards();
        let mut forwards: Vec<ForwardEntry> =
            own.iter().map(|forward| self.forward_entry(forward)).collect();
        for (replica, listed) in self.forwards_of_others(request).await? {
            match listed {
                Ok(reply) => forwards.extend(reply.forwards),
                // A replica that has died has no forwards.
                Err(error) => tracing::debug!(replica, %error, "its forwards can't be listed"),
            }
        }
        Ok(forwards)
    }

    /// The forwards of each other replica.
    async fn forwards_of_others(
        &self,
        request: &ForwardRequest,
    ) -> Result<Vec<(String, Result<ForwardReply, Error>)>, Error> {
        let asking = self.other_replicas().await?.into_iter().map(|replica| async {
            let listed = self.perform_at(&replica, "forward", request).await;
            (replica, listed)
        });
        Ok(join_all(asking).await)
    }

    fn forward_entry(&self, status: &ForwardStatus) -> ForwardEntry {
        ForwardEntry {
            machine: self.jobs.peers().map(|peers| peers.own_machine()),
            ..ForwardEntry::from(status)
        }
    }

    /// The other replica that has a forward. `None` if it is here, or nowhere.
    async fn replica_of_forward(&self, id: &str) -> Result<Option<String>, Error> {
        if self.jobs.forwards().iter().any(|forward| forward.id.to_string() == id) {
            return Ok(None);
        }
        let list = ForwardRequest::default();
        let mut unanswered = None;
        for (replica, listed) in self.forwards_of_others(&list).await? {
            match listed {
                Ok(reply) if reply.forwards.iter().any(|forward| forward.id == id) => {
                    return Ok(Some(replica));
                }
                Ok(_) => {}
                Err(error) => unanswered = Some(error),
            }
        }
        // The replica that did not answer may have it.
        unanswered.map_or(Ok(None), Err)
    }

    fn forward_spec(&self, request: &ForwardRequest) -> Result<ForwardSpec, Error> {
        let default_host = if request.reverse {
            "localhost"
        } else {
            "127.0.0.1"
        };
        let listen = request.listen.as_deref().unwrap_or("0");
        let listen = Endpoint::parse(listen, default_host).map_err(refuse_listen)?;
        let target = request.target.as_deref();
        let target = target.map(|target| Endpoint::parse_target(target, "127.0.0.1"));
        let target = target.transpose().map_err(refuse_target)?;
        let is_socket_here = !request.reverse && matches!(listen, Endpoint::Unix(_));
        if !self.is_for_this_machine() && (request.reverse || is_socket_here) {
            return Err(Error::new(
                Code::PolicyDenied,
                "over HTTP, a forward listens on a port of the server and leads to the host",
                "use `sshjobs forward` on the machine that the host is to reach",
            ));
        }
        let may_reach = |target| self.jobs.config().reverse_targets.contains(target);
        if let Some(target) = &target
            && request.reverse
            && !may_reach(target)
        {
            return Err(Error::new(
                Code::PolicyDenied,
                format!("reverse_targets does not list {target}"),
                format!(
                    "ask its owner to add \"{target}\" to reverse_targets in the configuration, or to run \
                     `sshjobs forward -R`"
                ),
            ));
        }
        match target {
            Some(target) if request.reverse => Ok(ForwardSpec::Remote { listen, target }),
            Some(target) => Ok(ForwardSpec::Local { listen, target }),
            None if request.reverse => Err(missing("target")),
            None => Ok(ForwardSpec::Dynamic { listen }),
        }
    }
}

fn refuse_listen(error: BadEndpoint) -> Error {
    let hint = "write 8080, 127.0.0.1:8080, [::1]:8080 or /run/app.sock; 0 stands for a free port";
    Error::invalid(error.to_string(), hint)
}

fn refuse_target(error: BadEndpoint) -> Error {
    let hint = "write web1:80, [::1]:80 or /run/app.sock; a port alone is on this loopback";
    Error::invalid(error.to_string(), hint)
}

fn missing(argument: &str) -> Error {
    Error::invalid(
        format!("{argument} is missing"),
        "open needs host and usually target, close needs id",
    )
}

impl From<&ForwardStatus> for ForwardEntry {
    fn from(status: &ForwardStatus) -> Self {
        Self {
            id: status.id.to_string(),
            host: status.host.clone(),
            listen: status.spec.listen().to_string(),
            machine: None,
            target: status.spec.target().map(ToString::to_string),
            reverse: matches!(status.spec, ForwardSpec::Remote { .. }),
            state: match status.state {
                ForwardState::Open => "open".to_owned(),
                ForwardState::Reconnecting => "reconnecting".to_owned(),
            },
            since: time_text(status.since),
            open: status.open_streams,
            connections: status.streams,
            bytes_out: status.bytes_to_target,
            bytes_in: status.bytes_from_target,
            errors: status.errors,
            last_error: status.last_error.clone(),
        }
    }
}

fn time_text(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
