//! The verb hosts.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::gpu_entry::GpuEntry;
use crate::Service;
use crate::error::Error;
use crate::leave_out::{is_false, is_zero_count};
use sshjobs_core::jobs::{
    ApprovalFrom, HostInfo, Jobs, Negotiated, Setting, SettingSource, Template,
};

/// List the configured hosts, or test one.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct HostsRequest {
    /// Connect to this host and report.
    #[serde(default)]
    pub host: Option<String>,
    /// List only hosts with this tag.
    #[serde(default)]
    pub tag: Option<String>,
    /// List the GPUs of host.
    #[serde(default, skip_serializing_if = "is_false")]
    pub gpus: bool,
}

/// The hosts.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct HostsReply {
    /// The hosts, by name.
    pub hosts: Vec<HostEntry>,
    /// Command templates that the caller may use on some of them.
    // Not in the tool's schema, which costs every client tokens: the reply shows it.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<TemplateEntry>,
}

/// A command template of the policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct TemplateEntry {
    /// Name for the argument template.
    pub name: String,
    /// What it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The command, with {NAME} for each parameter.
    pub command: String,
    /// The values that each parameter accepts, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub params: BTreeMap<String, String>,
    /// Whether a person has to approve each call.
    #[serde(default, skip_serializing_if = "is_false")]
    pub approval: bool,
}

/// State of one host.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct HostEntry {
    /// Name for the argument host.
    pub name: String,
    /// Tags from its configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// Names of the command templates that the caller may use there.
    #[schemars(skip)]
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub templates: Vec<String>,
    /// Places that list it: lines of ssh_config, or a table of the configuration.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listed_in: Vec<String>,
    /// Settings of the requested host, with their sources.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<SettingEntry>,
    /// Address and port behind the name, once resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// Jump hosts, the nearest to this host last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub via: Vec<String>,
    /// The account.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Whether a connection is open.
    pub connected: bool,
    /// Number of open connections.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub connections: usize,
    /// Channels in use on them.
    #[serde(default, skip_serializing_if = "is_zero_count")]
    pub channels_in_use: usize,
    /// The server's identification.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server: Option<String>,
    /// Whether the key exchange is protected from removed messages (strict kex).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict_kex: Option<bool>,
    /// The key exchange method in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kex: Option<String>,
    /// The cipher in use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cipher: Option<String>,
    /// Type and SHA-256 fingerprint of the host key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_key: Option<String>,
    /// Kind of login shell: posix, foreign (another shell) or bare (commands only: no cwd, env or tree signals).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_shell: Option<String>,
    /// Why the last connection failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// GPUs of the requested host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpuEntry>,
}

/// One setting of a host.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
pub struct SettingEntry {
    /// Name of the option in ssh_config.
    pub option: String,
    /// Its value.
    pub value: String,
    /// Where it is set: ssh_config, or a table of the configuration.
    pub source: String,
}

impl Service {
    /// Lists the hosts. If one is named, connects to it first; if that fails, its entry has the
    /// error.
    pub async fn hosts(&self, request: HostsRequest) -> Result<HostsReply, Error> {
        if let Some(replica) =
            self.replica_of_host(request.host.as_deref().unwrap_or_default()).await?
        {
            return self.perform_at(&replica, "hosts", &request).await;
        }
        let hosts = match &request.host {
            Some(name) => vec![self.jobs.probe(name).await?],
            None => self.jobs.hosts(request.tag.as_deref()).await?,
        };
        let mut reply = HostsReply {
            hosts: hosts.into_iter().map(HostEntry::from).collect(),
            templates: Vec::new(),
        };
        if let Some(name) = &request.host
            && let Some(entry) = reply.hosts.first_mut()
            && request.gpus
            && entry.connected
            // A forced command would run for it.
            && entry.login_shell.as_deref() != Some("bare")
        {
            let gpus = self.jobs.gpus(name).await.unwrap_or_else(|error| {
                tracing::debug!(host = name, %error, "its GPUs can't be listed");
                Vec::new()
            });
            entry.gpus = gpus.into_iter().map(GpuEntry::from).collect();
        }
        reply.add_templates(&self.jobs).await;
        Ok(reply)
    }
}

impl HostsReply {
    async fn add_templates(&mut self, jobs: &Jobs) {
        let mut all = BTreeMap::new();
        for host in &mut self.hosts {
            for template in jobs.templates(&host.name).await {
                host.templates.push(template.name.clone());
                all.insert(template.name.clone(), TemplateEntry::from(template));
            }
        }
        self.templates = all.into_values().collect();
    }
}

impl From<Template> for TemplateEntry {
    fn from(template: Template) -> Self {
        let params = template.parameters.into_iter().map(|(name, parameter)| {
            let mut accepted = parameter.kind.description();
            if let Some(default) = parameter.default {
                accepted.push_str(&format!("; default {default}"));
            }
            (name, accepted)
        });
        Self {
            approval: template.approval != ApprovalFrom::None,
            params: params.collect(),
            name: template.name,
            description: template.description,
            command: template.command,
        }
    }
}

impl From<HostInfo> for HostEntry {
    fn from(host: HostInfo) -> Self {
        let name = host.name;
        let settings = host
            .settings
            .into_iter()
            .map(|setting: Setting| SettingEntry {
                option: setting.key.to_owned(),
                value: setting.value,
                source: match setting.source {
                    SettingSource::Settings => format!("[hosts.{name}]"),
                    SettingSource::SshConfig => "ssh_config".to_owned(),
                },
            })
            .collect();
        let negotiated = |of: fn(Negotiated) -> String| host.negotiated.clone().map(of);
        Self {
            settings,
            templates: Vec::new(),
            gpus: Vec::new(),
            tags: host.tags,
            listed_in: host.listed_in,
            address: host.address.map(|(address, port)| format!("{address} port {port}")),
            via: host.via,
            user: host.user,
            connected: host.usage.connections > 0,
            connections: host.usage.connections,
            channels_in_use: host.usage.channels_in_use,
            server: negotiated(|with| with.server),
            strict_kex: host.negotiated.as_ref().map(|with| with.strict_kex),
            kex: negotiated(|with| with.kex),
            cipher: negotiated(|with| with.cipher),
            host_key: negotiated(|with| with.host_key),
            login_shell: host.login_shell.map(|shell| format!("{shell:?}").to_lowercase()),
            last_error: host.last_error.map(|error| Error::from(error).to_string()),
            name,
        }
    }
}
