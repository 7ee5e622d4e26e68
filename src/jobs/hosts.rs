use std::sync::Arc;

use futures_util::{StreamExt, stream};

use super::door::{Act, Inside, Look};
use super::{
    ConfigError, ConnectError, Error, HostError, Jobs, LoginShell, Negotiated, Setting, SpawnError, Usage,
};
use crate::hosts::{HostRef, PoolError};

/// One host at this moment.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Host {
    /// What to call it.
    pub name: String,
    /// Words of its configuration to find it by.
    pub tags: Vec<String>,
    /// Where it is listed: lines of ssh_config, or a table of the configuration.
    pub listed_in: Vec<String>,
    /// What is set for the host, and where; only of a host that was probed.
    pub settings: Vec<Setting>,
    /// Name or address to connect to, and the port.
    pub address: Option<(String, u16)>,
    /// Jump hosts on the way, the nearest to it first.
    pub via: Vec<String>,
    /// The account.
    pub user: Option<String>,
    /// Live connections, and channels in use on them.
    pub usage: Usage,
    /// What a live connection and the host have agreed on.
    pub negotiated: Option<Negotiated>,
    /// What runs commands there, when there is a live connection.
    pub login_shell: Option<LoginShell>,
    /// Why it could not be reached last time.
    pub last_error: Option<Error>,
}

/// Maximum names resolved concurrently; each runs ssh once.
const AT_A_TIME: usize = 16;

impl Jobs {
    /// The hosts that the caller's jobs can run on, or those with a tag, by name.
    ///
    /// # Errors
    /// [`Error::Host`] when ssh_config can't be read, or no host has the tag; [`Error::Connect`] when a mistake in ssh_config
    /// keeps all of them from being resolved.
    pub async fn hosts(&self, tag: Option<&str>) -> Result<Vec<Host>, Error> {
        let inside = self.door.look(Look::Hosts, &"all");
        let book = inside.hosts.book();
        let mut listed = book.listed().await?;
        listed.retain(|name, _| self.door.has_host(name));
        let total = listed.len();
        let has_tag = |name: &str| tag.is_none_or(|tag| book.tags(name).iter().any(|known| known == tag));
        let wanted: Vec<_> = listed.into_iter().filter(|(name, _)| has_tag(name)).collect();
        let hosts = wanted
            .into_iter()
            .map(|(name, listed_in)| async { Host { listed_in, ..self.host(inside, name).await } });
        let hosts: Vec<Host> = stream::iter(hosts).buffered(AT_A_TIME).collect().await;
        if hosts.is_empty() && total > 0 {
            let tag = tag.unwrap_or_default().to_owned();
            return Err(HostError::UnknownTag { tag, total }.into());
        }
        match hosts.iter().map(|host| host.last_error.clone().filter(is_mistake)).collect::<Option<Vec<_>>>()
        {
            Some(mut mistakes) if !mistakes.is_empty() => Err(mistakes.swap_remove(0)),
            _ => Ok(hosts),
        }
    }

    /// The names of the hosts that the caller's jobs can run on, with their tags. Nothing is resolved: it is quick.
    ///
    /// # Errors
    /// [`Error::Host`] when ssh_config can't be read.
    pub async fn host_names(&self) -> Result<Vec<(String, Vec<String>)>, Error> {
        let book = self.door.look(Look::Hosts, &"names").hosts.book();
        let listed = book.listed().await?.into_keys().filter(|name| self.door.has_host(name));
        Ok(listed.map(|name| (book.tags(&name).to_vec(), name)).map(|(tags, name)| (name, tags)).collect())
    }

    /// Connects to a host, unless there is a live connection, and tells what came of it. For a host that can't be reached,
    /// `last_error` tells why.
    ///
    /// # Errors
    /// [`Error::Host`] when the host can't be named.
    pub async fn probe(&self, name: &str) -> Result<Host, Error> {
        let (inside, host) = self.door.act_on_host(Act::Probe, name).await?;
        let failed = |error: PoolError<ConnectError>| {
            let source = SpawnError::from(error);
            Error::Spawn { host: name.to_owned(), nearest: None, source }
        };
        let probed = inside.hosts.probe(&host).await.map(drop).map_err(failed);
        inside.last_errors.note(&host, probed.as_ref().err());
        let book = inside.hosts.book();
        let listed_in = book.listed().await?.remove(name).unwrap_or_default();
        let settings = book.settings(name).await;
        Ok(Host { listed_in, settings, ..self.host(inside, host.name).await })
    }

    async fn host(&self, inside: &Inside, name: String) -> Host {
        let reference = HostRef { caller: self.caller().clone(), name };
        let (hosts, name) = (&inside.hosts, &reference.name);
        let mut host = Host {
            usage: hosts.pool().usage(&reference),
            last_error: inside.last_errors.get(&reference),
            tags: hosts.book().tags(name).to_vec(),
            ..Host::default()
        };
        match hosts.book().resolve(name).await {
            Ok(config) => {
                let jumps = std::iter::successors(config.jump.as_deref(), |host| host.jump.as_deref());
                host.via = jumps.map(|host| host.name.clone()).collect();
                (host.address, host.user) = (Some((config.address, config.port)), Some(config.user));
            }
            Err(error) => {
                host.last_error = Some(Error::Connect { host: name.clone(), source: Arc::new(error) });
            }
        }
        if let Some(lease) = hosts.live(&reference) {
            let link = lease.connection();
            host.negotiated = Some(link.connection.negotiated());
            host.login_shell = Some(link.shell);
        }
        host.name = reference.name;
        host
    }
}

/// Whether a mistake in ssh_config keeps a host from being resolved.
fn is_mistake(error: &Error) -> bool {
    let Error::Connect { source, .. } = error else { return false };
    matches!(**source, ConnectError::Config(ConfigError::Rejected { .. }))
}
