use std::sync::Arc;

use futures_util::{StreamExt, stream};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Code, Error, Service};
use crate::runner::SpawnError;
use crate::ssh::{ConfigError, ConnectError, Negotiated, Setting, Source};

/// List the hosts there are, or try one.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostsRequest {
    /// Connect to this one and report.
    #[serde(default)]
    #[schemars(with = "String")]
    pub host: Option<String>,
    /// List only hosts with this tag.
    #[serde(default)]
    #[schemars(with = "String")]
    pub tag: Option<String>,
}

/// The hosts.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct HostsReply {
    /// The hosts, by name.
    pub hosts: Vec<HostEntry>,
}

/// One host at this moment.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct HostEntry {
    /// What to call it.
    pub name: String,
    /// Words of its configuration to find it by.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Where it is listed: lines of ssh_config, or a table of the configuration.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub listed_in: Vec<String>,
    /// Of the host asked about: what is set for it, and where.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingEntry>,
    /// Address and port that name stands for; known once it was looked up.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub address: Option<String>,
    /// The hosts it is reached through, the nearest to it first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
    /// The account.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub user: Option<String>,
    /// Whether there is a live connection.
    pub connected: bool,
    /// How many.
    #[serde(skip_serializing_if = "is_none_of_it")]
    pub connections: usize,
    /// How many channels are in use on them.
    #[serde(skip_serializing_if = "is_none_of_it")]
    pub channels_in_use: usize,
    /// How the server names itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub server: Option<String>,
    /// Whether the key exchange is strict: nobody could have dropped messages of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "bool")]
    pub strict_kex: Option<bool>,
    /// The key exchange method in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub kex: Option<String>,
    /// The cipher in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub cipher: Option<String>,
    /// Type and SHA-256 fingerprint of the host key.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub host_key: Option<String>,
    /// What runs commands there: posix, foreign (another shell) or bare (commands only: no cwd, env or tree signals).
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub login_shell: Option<String>,
    /// Why it could not be reached last time.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "String")]
    pub last_error: Option<String>,
}

/// One thing that is set for a host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[schemars(inline)]
pub struct SettingEntry {
    /// The option, as ssh_config calls it.
    pub option: String,
    /// Its value.
    pub value: String,
    /// Where it is set: ssh_config, or a table of the configuration.
    pub source: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_none_of_it(count: &usize) -> bool {
    *count == 0
}

/// How many names are resolved at a time; each takes a run of ssh.
const AT_A_TIME: usize = 16;

impl Service {
    /// Lists the hosts; with one named, connects to it first. A host that can't be reached says so in its entry.
    pub async fn hosts(&self, request: HostsRequest) -> Result<HostsReply, Error> {
        let Some(name) = request.host else { return self.list(request.tag).await };
        self.hosts.check(&name).await?;
        let probed =
            self.runner.probe(&name).await.map(drop).map_err(|error| Error::from(error).about(&name));
        self.hosts.note_error(&name, probed.as_ref().err());
        let listed_in = self.hosts.listed().await?.remove(&name).unwrap_or_default();
        let setting = |setting: Setting| SettingEntry {
            option: setting.key.to_owned(),
            value: setting.value,
            source: match setting.source {
                Source::Overrides => format!("[hosts.{name}]"),
                Source::SshConfig => "ssh_config".to_owned(),
            },
        };
        let settings = self.hosts.settings(&name).await.into_iter().map(setting).collect();
        let (entry, _) = self.host_entry(name).await;
        Ok(HostsReply { hosts: vec![HostEntry { listed_in, settings, ..entry }] })
    }

    /// Every host, or those with a tag. A mistake in ssh_config that is in the way of all of them is an error.
    async fn list(&self, tag: Option<String>) -> Result<HostsReply, Error> {
        let listed = self.hosts.listed().await?;
        let total = listed.len();
        let has_tag = |name: &String| tag.as_ref().is_none_or(|tag| self.hosts.tags(name).contains(tag));
        let wanted = listed.into_iter().filter(|(name, _)| has_tag(name));
        let entries = wanted.map(async |(name, listed_in)| {
            let (entry, mistake) = self.host_entry(name).await;
            (HostEntry { listed_in, ..entry }, mistake)
        });
        let found: Vec<_> = stream::iter(entries).buffered(AT_A_TIME).collect().await;
        if found.is_empty() && total > 0 {
            let message = format!("none of the {total} hosts has the tag {:?}", tag.unwrap_or_default());
            return Err(Error::new(Code::UnknownHost, message, "tags stand in the [hosts.NAME] tables"));
        }
        let (hosts, mistakes): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        match mistakes.into_iter().collect::<Option<Vec<Error>>>() {
            Some(mut mistakes) if !mistakes.is_empty() => Err(mistakes.swap_remove(0)),
            _ => Ok(HostsReply { hosts }),
        }
    }

    /// A host, and the mistake in ssh_config that is in its way, if there is one.
    async fn host_entry(&self, name: String) -> (HostEntry, Option<Error>) {
        let (usage, mut mistake) = (self.runner.usage(&name), None);
        let mut entry = HostEntry {
            connected: usage.connections > 0,
            connections: usage.connections,
            channels_in_use: usage.channels_in_use,
            last_error: self.hosts.last_error(&name),
            tags: self.hosts.tags(&name).to_vec(),
            ..HostEntry::default()
        };
        match self.hosts.resolve(&name).await {
            Ok(config) => {
                entry.address = Some(format!("{} port {}", config.address, config.port));
                let jumps = std::iter::successors(config.jump.as_deref(), |host| host.jump.as_deref());
                entry.via = jumps.map(|host| host.name.clone()).collect();
                entry.user = Some(config.user);
            }
            Err(error) => {
                let is_mistake = matches!(error, ConnectError::Config(ConfigError::Rejected { .. }));
                let error = Error::from(SpawnError::Connect(Arc::new(error))).about(&name);
                entry.last_error = Some(error.to_string());
                mistake = is_mistake.then_some(error);
            }
        }
        if let Some(lease) = self.runner.live(&name) {
            let link = lease.connection();
            let Negotiated { kex, cipher, host_key, strict_kex, server } = link.connection.negotiated();
            entry.strict_kex = Some(strict_kex);
            entry.server = Some(server);
            (entry.kex, entry.cipher, entry.host_key) = (Some(kex), Some(cipher), Some(host_key));
            entry.login_shell = Some(format!("{:?}", link.shell).to_lowercase());
        }
        entry.name = name;
        (entry, mistake)
    }
}
