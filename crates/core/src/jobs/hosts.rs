//! Lists and probes hosts.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::{StreamExt, stream};

use super::door::Inside;
use super::error::Error;
use super::jobs::Jobs;
use crate::hosts::{HostRef, PoolError};
use crate::jobs::{
    ConfigError, ConnectError, Gpu, HostError, HostUsage, LoginShell, Negotiated, Setting,
    SpawnError,
};
use sshjobs_policy::Verb;

/// State of one host.
#[derive(Clone, Debug, Default)]
pub struct HostInfo {
    /// Name by which callers use it.
    pub name: String,
    /// Tags from its configuration.
    pub tags: Vec<String>,
    /// Places that list it: lines of ssh_config, or a table of the configuration.
    pub listed_in: Vec<String>,
    /// Settings of the host with their sources. Only for a host that was probed.
    pub settings: Vec<Setting>,
    /// Name or address to connect to, and the port.
    pub address: Option<(String, u16)>,
    /// Jump hosts, the nearest to this host last.
    pub via: Vec<String>,
    /// The account.
    pub user: Option<String>,
    /// Live connections, and channels in use on them.
    pub usage: HostUsage,
    /// Negotiated algorithms of a live connection.
    pub negotiated: Option<Negotiated>,
    /// Login shell of the host, if there is a live connection.
    pub login_shell: Option<LoginShell>,
    /// Why the last connection failed.
    pub last_error: Option<Error>,
}

/// Maximum names resolved concurrently; each runs ssh once.
const AT_A_TIME: usize = 16;

impl Jobs {
    /// The hosts on which the caller may run jobs, optionally only those with a tag, by name.
    ///
    /// # Errors
    /// [`Error::Refused`] if ssh_config can't be read, or no host has the tag; [`Error::Connect`] if
    /// an error in ssh_config prevents all of them from being resolved.
    pub async fn hosts(&self, tag: Option<&str>) -> Result<Vec<HostInfo>, Error> {
        let inside = &self.door.inside;
        let book = inside.hosts.book();
        let mut listed = book.listed().await?;
        let usable =
            self.door.admission.usable(Verb::Hosts, listed.keys().cloned().collect()).await;
        let usable: HashSet<String> = usable.into_iter().collect();
        listed.retain(|name, _| usable.contains(name));
        let total = listed.len();
        if let Some(tag) = tag {
            listed.retain(|name, _| book.tags(name).iter().any(|known| known == tag));
        }
        let hosts = listed.into_iter().map(|(name, listed_in)| async {
            HostInfo {
                listed_in,
                ..self.host(inside, name).await
            }
        });
        let hosts: Vec<HostInfo> = stream::iter(hosts).buffered(AT_A_TIME).collect().await;
        // Only a tag can have removed all hosts.
        if hosts.is_empty() && total > 0 {
            let tag = tag.unwrap_or_default().to_owned();
            return Err(HostError::UnknownTag { tag, total }.into());
        }
        // `Some` only if every host has such an error: then the file is wrong, not one host.
        match hosts
            .iter()
            .map(|host| host.last_error.clone().filter(is_mistake))
            .collect::<Option<Vec<_>>>()
        {
            Some(mut mistakes) if !mistakes.is_empty() => Err(mistakes.swap_remove(0)),
            _ => Ok(hosts),
        }
    }

    /// Names of the hosts on which the caller may run jobs, with their tags. Resolves nothing, so
    /// it is fast.
    ///
    /// # Errors
    /// [`Error::Refused`] if ssh_config can't be read.
    pub async fn host_names(&self) -> Result<Vec<(String, Vec<String>)>, Error> {
        let book = self.door.book();
        let mut names = Vec::new();
        for name in book.listed().await?.into_keys() {
            let admission = &self.door.admission;
            if admission.has_host(&name) && admission.is_allowed(Verb::Hosts, &name).await {
                let tags = book.tags(&name).to_vec();
                names.push((name, tags));
            }
        }
        Ok(names)
    }

    /// Connects to a host, unless there is a live connection, and returns its state. If the host
    /// can't be reached, `last_error` has the reason.
    ///
    /// # Errors
    /// [`Error::Refused`] if the host can't be used.
    pub async fn probe(&self, name: &str) -> Result<HostInfo, Error> {
        let permit = self.door.admission.admit_connection(Verb::Probe, name).await?;
        let host = permit.host();
        let inside = &self.door.inside;
        let probed = inside.hosts.probe(host).await.map_err(|error: PoolError<ConnectError>| {
            let source = SpawnError::from(error);
            Error::Spawn {
                host: name.to_owned(),
                nearest: None,
                source,
            }
        });
        if let Ok(lease) = &probed {
            // If the host can't be asked, its login shell is omitted.
            lease.connection().ask_shell().await.ok();
        }
        // Returns the slot first, so that the usage below does not count the probe.
        let probed = probed.map(drop);
        // Before `host` below, which reports it. A success removes the old error.
        inside.last_errors.note(host, probed.as_ref().err());
        let book = inside.hosts.book();
        let listed_in = book.listed().await?.remove(name).unwrap_or_default();
        let settings = book.settings(name).await;
        Ok(HostInfo {
            listed_in,
            settings,
            ..self.host(inside, host.name.clone()).await
        })
    }

    /// The GPUs of a host, with their processes and the jobs that have them.
    ///
    /// # Errors
    /// [`Error::Refused`] if the host can't be used; [`Error::Spawn`] if it can't be reached.
    pub async fn gpus(&self, name: &str) -> Result<Vec<Gpu>, Error> {
        let permit = self.door.admission.admit_connection(Verb::Probe, name).await?;
        let capacity = self.door.runner().capacity_of(permit.host()).await;
        let listed = capacity.map(|capacity| capacity.gpus);
        listed.map_err(|source| Error::Spawn {
            host: name.to_owned(),
            nearest: None,
            source,
        })
    }

    /// Connects to a host and logs in, unless there is a live connection.
    ///
    /// # Errors
    /// [`Error::Refused`] if the host can't be used; [`Error::Connect`] if it can't be reached.
    pub async fn connect(&self, name: &str) -> Result<(), Error> {
        let permit = self.door.admission.admit_connection(Verb::Probe, name).await?;
        let host = name.to_owned();
        let connected = self.door.inside.hosts.probe(permit.host()).await.map(drop);
        let connected = connected.map_err(|error| {
            let source = SpawnError::from(error);
            if let SpawnError::Connect(source) = source {
                return Error::Connect { host, source };
            }
            // Its connections are full.
            Error::Spawn {
                host,
                nearest: None,
                source,
            }
        });
        self.door.note_connection(permit.host(), connected.as_ref().err());
        connected
    }

    async fn host(&self, inside: &Inside, name: String) -> HostInfo {
        let reference = HostRef {
            caller: self.caller().clone(),
            name,
        };
        let hosts = &inside.hosts;
        let name = &reference.name;
        let mut host = HostInfo {
            usage: hosts.pool().usage(&reference),
            last_error: inside.last_errors.get(&reference),
            tags: hosts.book().tags(name).to_vec(),
            ..HostInfo::default()
        };
        match hosts.book().resolve(name).await {
            Ok(config) => {
                let jumps =
                    std::iter::successors(config.jump.as_deref(), |host| host.jump.as_deref());
                host.via = jumps.map(|host| host.name.clone()).collect();
                host.address = Some((config.address, config.port));
                host.user = Some(config.user);
            }
            Err(error) => {
                host.last_error = Some(Error::Connect {
                    host: name.clone(),
                    source: Arc::new(error),
                });
            }
        }
        if let Some(lease) = hosts.live(&reference) {
            let link = lease.connection();
            host.negotiated = Some(link.connection.negotiated());
            host.login_shell = link.known_shell();
        }
        host.name = reference.name;
        host
    }
}

/// Whether an error in ssh_config prevents a host from being resolved.
fn is_mistake(error: &Error) -> bool {
    let Error::Connect { source, .. } = error else { return false };
    matches!(**source, ConnectError::Config(ConfigError::Rejected { .. }))
}
