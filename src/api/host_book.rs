use std::collections::{BTreeMap, HashMap};
use std::sync::{Mutex, PoisonError};

use super::config::nearest;
use super::{Code, Config, Error};
use crate::runner::Directory;
use crate::ssh::{
    Aliases, ConnectError, HostConfig, Location, Resolver, Setting, concrete_aliases, off_runtime,
};

/// The longest name that DNS knows.
const LONGEST_NAME: usize = 255;
/// How many hosts' last errors are kept.
const MOST_ERRORS: usize = 1000;

/// Which hosts a caller may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Those of the configuration and of ssh_config, unless the configuration allows any.
    Listed,
    /// Any, as with ssh.
    Any,
}

/// Knows which hosts there are and how each is reached.
pub(super) struct HostBook {
    resolver: Resolver,
    tags: BTreeMap<String, Vec<String>>,
    access: Access,
    /// Hosts that no configuration lists, such as the demo's.
    given: BTreeMap<String, HostConfig>,
    /// Why each host could not be reached last time.
    last_errors: Mutex<HashMap<String, String>>,
}

impl HostBook {
    pub(super) fn new(config: &Config, access: Access) -> Self {
        Self {
            resolver: Resolver {
                ssh_config: config.ssh_config.clone(),
                overrides: config.hosts.iter().map(|(name, table)| (name.clone(), table.into())).collect(),
                proxy_commands: config.allow_proxy_command,
                arguments: config.ssh_arguments.clone(),
            },
            tags: config.hosts.iter().map(|(name, table)| (name.clone(), table.tags.clone())).collect(),
            access: if config.allow_any_host { Access::Any } else { access },
            given: BTreeMap::new(),
            last_errors: Mutex::default(),
        }
    }

    pub(super) fn with_given(mut self, host: HostConfig) -> Self {
        self.given.insert(host.name.clone(), host);
        self
    }

    /// Every host by name, in order, with the places where it is listed.
    pub(super) async fn listed(&self) -> Result<BTreeMap<String, Vec<String>>, Error> {
        let mut listed: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in self.resolver.overrides.keys() {
            listed.entry(name.clone()).or_default().push(format!("[hosts.{name}]"));
        }
        for (name, Location { file, line }) in self.aliases().await? {
            listed.entry(name).or_default().push(format!("{}:{line}", file.display()));
        }
        for name in self.given.keys() {
            listed.entry(name.clone()).or_default();
        }
        Ok(listed)
    }

    /// The words to find a host by.
    pub(super) fn tags(&self, name: &str) -> &[String] {
        self.tags.get(name).map_or(&[], Vec::as_slice)
    }

    /// What is set for a host, and where.
    pub(super) async fn settings(&self, name: &str) -> Vec<Setting> {
        if self.given.contains_key(name) {
            return Vec::new();
        }
        // Whoever resolves the host is told why it can't be.
        self.resolver.settings(name).await.unwrap_or_default()
    }

    async fn aliases(&self) -> Result<Aliases, Error> {
        let file = self.resolver.ssh_config.clone();
        let path = file.clone().unwrap_or_else(|| "ssh_config".into());
        let read = off_runtime(&path, move || concrete_aliases(file.as_deref())).await;
        read.and_then(|aliases| aliases).map_err(|error| {
            Error::new(Code::Io, format!("can't read ssh_config: {error}"), "make the file readable")
        })
    }

    /// Refuses a host that callers may not name.
    pub(super) async fn check(&self, name: &str) -> Result<(), Error> {
        if name.len() > LONGEST_NAME {
            let message = format!("a host name of {} bytes can't be one", name.len());
            return Err(Error::new(Code::InvalidArgument, message, "ssh_hosts lists the hosts there are"));
        }
        if self.access == Access::Any
            || self.given.contains_key(name)
            || self.resolver.overrides.contains_key(name)
        {
            return Ok(());
        }
        let names = self.listed().await?;
        if names.contains_key(name) {
            return Ok(());
        }
        let hint = match nearest(name, names.keys().map(String::as_str)) {
            Some(known) => format!("did you mean {known:?}? ssh_hosts lists all"),
            None => {
                "ssh_hosts lists the hosts there are; add this one to ssh_config or to [hosts]".to_owned()
            }
        };
        Err(Error::new(Code::UnknownHost, format!("there is no host {name:?}"), hint))
    }

    /// The listed host that a name which is not listed was most likely meant to be.
    pub(super) async fn nearest(&self, name: &str) -> Option<String> {
        let names = self.listed().await.ok().filter(|names| !names.contains_key(name))?;
        nearest(name, names.keys().map(String::as_str)).map(str::to_owned)
    }

    pub(super) async fn resolve(&self, name: &str) -> Result<HostConfig, ConnectError> {
        if let Some(host) = self.given.get(name) {
            return Ok(host.clone());
        }
        Ok(self.resolver.resolve(name).await?)
    }

    pub(super) fn last_error(&self, name: &str) -> Option<String> {
        self.last_errors.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    pub(super) fn note_error(&self, name: &str, error: Option<&Error>) {
        let mut errors = self.last_errors.lock().unwrap_or_else(PoisonError::into_inner);
        match error {
            // Where any host may be named these would pile up.
            Some(_) if errors.len() >= MOST_ERRORS && !errors.contains_key(name) => None,
            Some(error) => errors.insert(name.to_owned(), error.to_string()),
            None => errors.remove(name),
        };
    }
}

impl Directory for HostBook {
    async fn host(&self, name: &str) -> Result<HostConfig, ConnectError> {
        self.resolve(name).await
    }
}
