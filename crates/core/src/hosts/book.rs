//! Which hosts exist, which a caller may name, and their settings. Resolving a name may run `ssh -G`, so
//! results are cached for two seconds.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::time::Instant;

use super::HostError;
use sshjobs_base::host_pattern::canonical_host;
use sshjobs_base::lock::lock;
use sshjobs_base::nearest::nearest;
use sshjobs_ssh::{
    Aliases, ConnectError, Destination, HostConfig, HostSettings, Location, Resolver, Setting,
};

/// Maximum length of a DNS name.
const LONGEST_NAME: usize = 255;
/// Time for which a resolved name is cached: each lookup may run `ssh -G`.
const RESOLVED_FOR: Duration = Duration::from_secs(2);

/// Which hosts callers may name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Hosts in the configuration and in ssh_config, unless the configuration allows any.
    Listed,
    /// Any host, as in ssh.
    Any,
}

/// The known hosts and how to reach them.
pub struct HostBook {
    resolver: Resolver,
    access: Access,
    /// `env_setup` of the hosts with a tag, by tag.
    setups_by_tag: BTreeMap<String, String>,
    /// Hosts that no configuration lists, such as the demo's.
    given: BTreeMap<String, HostConfig>,
    resolved: Mutex<HashMap<String, (Instant, HostConfig)>>,
}

impl HostBook {
    /// A book of the hosts that `resolver` knows.
    pub fn new(resolver: Resolver, access: Access) -> Self {
        Self {
            resolver,
            access,
            setups_by_tag: BTreeMap::new(),
            given: BTreeMap::new(),
            resolved: Mutex::default(),
        }
    }

    /// Sets `env_setup` of the hosts with a tag, by tag.
    #[must_use]
    pub fn with_setups(mut self, by_tag: BTreeMap<String, String>) -> Self {
        self.setups_by_tag = by_tag;
        self
    }

    /// Adds a host that no configuration lists.
    #[must_use]
    pub fn with_given(mut self, host: HostConfig) -> Self {
        self.given.insert(host.name.clone(), host);
        self
    }

    /// All listed hosts by name, in order, with the places that list them.
    pub async fn listed(&self) -> Result<BTreeMap<String, Vec<String>>, HostError> {
        let mut listed: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for name in self.resolver.settings.keys() {
            listed.entry(name.clone()).or_default().push(format!("[hosts.{name}]"));
        }
        for (name, Location { file, line }) in self.aliases().await?.iter() {
            listed
                .entry(name.clone())
                .or_default()
                .push(format!("{}:{line}", file.display()));
        }
        for name in self.given.keys() {
            listed.entry(name.clone()).or_default();
        }
        Ok(listed)
    }

    /// The tags of a host, however its name is written.
    pub fn tags(&self, name: &str) -> &[String] {
        self.table(name).map_or(&[], |settings| &settings.tags)
    }

    /// The commands that a job's shell runs first on a host: its own, or those of its first tag that has some.
    pub fn env_setup(&self, name: &str) -> Option<&str> {
        let settings = self.table(name)?;
        let mut of_tags = settings.tags.iter().filter_map(|tag| self.setups_by_tag.get(tag));
        settings.env_setup.as_ref().or_else(|| of_tags.next()).map(String::as_str)
    }

    /// The table of a host in the configuration, however its name is written.
    fn table(&self, name: &str) -> Option<&HostSettings> {
        if let Some(settings) = self.resolver.settings.get(name) {
            return Some(settings);
        }
        let host = Destination::parse(name).ok()?.canonical_host();
        let mut tables = self.resolver.settings.iter();
        tables
            .find(|(known, _)| canonical_host(known) == host)
            .map(|(_, settings)| settings)
    }

    /// The settings of a host, with their sources.
    pub async fn settings(&self, name: &str) -> Vec<Setting> {
        if self.given.contains_key(name) {
            return Vec::new();
        }
        // An error is reported when the host is resolved.
        self.resolver.settings(name).await.unwrap_or_default()
    }

    async fn aliases(&self) -> Result<Arc<Aliases>, HostError> {
        let aliases = self.resolver.aliases().await;
        aliases.map_err(|error| HostError::Unreadable(Arc::new(error)))
    }

    /// Refuses a host that callers may not use.
    pub async fn check(&self, name: &str) -> Result<(), HostError> {
        if name.len() > LONGEST_NAME {
            return Err(HostError::LongName(name.len()));
        }
        if self.access == Access::Any
            || self.given.contains_key(name)
            || self.resolver.settings.contains_key(name)
        {
            return Ok(());
        }
        if self.aliases().await?.contains_key(name) {
            return Ok(());
        }
        let names = self.listed().await?;
        let nearest = nearest(name, names.keys().map(String::as_str)).map(str::to_owned);
        Err(HostError::Unknown {
            name: name.to_owned(),
            nearest,
        })
    }

    /// Refuses the first host that callers may not use.
    pub async fn check_all(&self, names: &[String]) -> Result<(), HostError> {
        // Listed once for all names. With `Any` it stays empty, so that `check` sees every name.
        let listed = if self.access == Access::Any {
            BTreeMap::new()
        } else {
            self.listed().await?
        };
        for name in names.iter().filter(|name| !listed.contains_key(*name)) {
            self.check(name).await?;
        }
        Ok(())
    }

    /// Removes a name from the cache, so that it is resolved again.
    pub fn forget(&self, name: &str) {
        lock(&self.resolved).remove(name);
    }

    /// Resolves a name. The result may be two seconds old.
    pub async fn resolve(&self, name: &str) -> Result<HostConfig, ConnectError> {
        if let Some(host) = self.given.get(name) {
            return Ok(host.clone());
        }
        if let Some((_, known)) =
            lock(&self.resolved).get(name).filter(|(when, _)| when.elapsed() < RESOLVED_FOR)
        {
            return Ok(known.clone());
        }
        // Not locked meanwhile. Two callers may both run `ssh -G`, and the later result is kept.
        let host = self.resolver.resolve(name).await?;
        let mut resolved = lock(&self.resolved);
        resolved.retain(|_, (when, _)| when.elapsed() < RESOLVED_FOR);
        resolved.insert(name.to_owned(), (Instant::now(), host.clone()));
        Ok(host)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_resolved_name_is_cached_for_two_seconds_or_until_it_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("config");
        let resolver = Resolver {
            ssh_config: Some(file.clone()),
            ..Resolver::default()
        };
        let book = HostBook::new(resolver, Access::Any);
        let set_port =
            |port: u16| std::fs::write(&file, format!("Host web1\n  Port {port}\n")).unwrap();
        let port = async || book.resolve("web1").await.unwrap().port;

        set_port(1001);
        assert_eq!(port().await, 1001);
        // As if resolved later, so that it does not expire here on a slow machine.
        lock(&book.resolved).get_mut("web1").unwrap().0 = Instant::now() + RESOLVED_FOR;
        set_port(1002);
        assert_eq!(port().await, 1001, "from the cache");

        book.forget("web1");
        assert_eq!(port().await, 1002, "forgotten");

        set_port(1003);
        tokio::time::pause();
        tokio::time::advance(RESOLVED_FOR).await;
        tokio::time::resume();
        assert_eq!(port().await, 1003, "two seconds later");
    }
}
