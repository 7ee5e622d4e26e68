//! The configuration.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use etcetera::BaseStrategy;
use serde::de::Error;
use serde::{Deserialize, Deserializer};

use super::cluster_config::ClusterConfig;
use super::notify::NotifyConfig;
use super::oidc::OidcConfig;
use super::secrets::SecretConfig;
use crate::admission::Auditor;
use crate::runner::{Limits, QueueRule};
use sshjobs_job::is_queue_name;
use sshjobs_ssh::{Endpoint, HostSettings, SecretSource};
#[cfg(feature = "sqlite")]
use sshjobs_store::StateDir;
use sshjobs_store::{Store, StoreError};

/// The program's configuration, a TOML file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Limits on jobs.
    pub limits: Limits,
    /// Defaults for arguments that calls omit.
    pub defaults: Defaults,
    /// Settings of hosts, by name. They override those of ssh_config.
    pub hosts: BTreeMap<String, HostSettings>,
    /// Settings of all hosts with a tag, by tag.
    pub tags: BTreeMap<String, TagConfig>,
    /// Secrets that commands may use, by name.
    pub secrets: BTreeMap<String, SecretConfig>,
    /// Whether callers may use any host, as in ssh.
    pub allow_any_host: bool,
    /// Whether a ProxyCommand of ssh_config may be run on this machine.
    pub allow_proxy_command: bool,
    /// An ssh_config file that replaces the user's and the system's.
    pub ssh_config: Option<PathBuf>,
    /// Directories of this machine whose files an agent may copy to hosts and from them.
    pub transfer_roots: Vec<PathBuf>,
    /// Whether trees for jobs may be read from any directory of this machine: for a person at it.
    pub reads_any_directory: bool,
    /// Ports and sockets that hosts may reach by a reverse forward of an agent.
    pub reverse_targets: Vec<Endpoint>,
    /// Whether forwards may listen on addresses that other machines can reach.
    pub forward_any_address: bool,
    /// Whether records and output of jobs are stored in the state directory.
    pub store: bool,
    /// A state directory that replaces the user's own.
    pub state_dir: Option<PathBuf>,
    /// Who may do what.
    pub policy: PolicyConfig,
    /// Issuers of tokens that the HTTP server accepts.
    pub oidc: OidcConfig,
    /// Notifications of what happens to jobs.
    pub notify: NotifyConfig,
    /// Queues of jobs, by name. One that is not listed runs one job at a time.
    pub queues: BTreeMap<String, QueueRule>,
    /// The cluster of which a server is a replica, if any.
    pub cluster: ClusterConfig,
    /// More arguments for `ssh -G`, which resolves host names. Not read from a file.
    #[serde(skip)]
    pub ssh_arguments: Vec<String>,
    /// Name of this process, shown to other processes as the owner of its jobs, such as
    /// `sshjobs serve`. Not read from a file.
    #[serde(skip)]
    pub process: String,
}

/// Settings of all hosts with a tag: the table `[tags.NAME]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TagConfig {
    /// Commands that a job's shell runs first, unless its host or the call has other ones.
    pub env_setup: Option<String>,
}

/// The policy: the table `[policy]`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PolicyConfig {
    /// The policy file. Without one, roles and host patterns of callers decide alone.
    pub file: Option<PathBuf>,
}

/// Defaults for arguments that calls omit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Defaults {
    /// Lines in one page.
    pub max_lines: u32,
    /// Bytes of text in one reply.
    pub max_bytes: u32,
    /// Milliseconds for which `run` waits for the end of its command.
    pub run_wait_ms: u32,
    /// Whether jobs are durable.
    pub durable: bool,
    /// Time without a call for it after which a durable job is ended, such as `"7d"`. By default none is.
    #[serde(deserialize_with = "time_in_words")]
    pub abandoned: Option<Duration>,
}

/// Maximum lines in a reply, and maximum bytes of text.
const MOST_LINES: u32 = 10_000;
const MOST_BYTES: u32 = 262_144;

impl Defaults {
    /// The first invalid default, by name, with the reason.
    fn validate(&self) -> Option<String> {
        let settings = [
            ("max_lines", self.max_lines, MOST_LINES),
            ("max_bytes", self.max_bytes, MOST_BYTES),
        ];
        let out_of_range =
            settings.into_iter().find(|(_, value, most)| !(1..=*most).contains(value));
        if let Some((name, _, most)) = out_of_range {
            return Some(format!("{name} must be 1 to {most}"));
        }
        let is_too_short = self.abandoned.is_some_and(|abandoned| abandoned < SHORTEST_ABANDONED);
        is_too_short.then(|| "abandoned must be at least 1s, such as 7d".to_owned())
    }
}

/// Shortest time after which a job counts as abandoned.
const SHORTEST_ABANDONED: Duration = Duration::from_secs(1);

/// Reads a time such as `7d` or `12h`.
fn time_in_words<'de, D: Deserializer<'de>>(words: D) -> Result<Option<Duration>, D::Error> {
    let words = String::deserialize(words)?;
    humantime::parse_duration(&words).map(Some).map_err(|error| {
        D::Error::custom(format!(
            "{words:?} is not a time such as 7d or 12h: {error}"
        ))
    })
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            max_lines: 500,
            max_bytes: 32 << 10,
            run_wait_ms: 30_000,
            durable: false,
            abandoned: None,
        }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            defaults: Defaults::default(),
            hosts: BTreeMap::new(),
            tags: BTreeMap::new(),
            secrets: BTreeMap::new(),
            allow_any_host: false,
            allow_proxy_command: false,
            ssh_config: None,
            transfer_roots: Vec::new(),
            reads_any_directory: false,
            reverse_targets: Vec::new(),
            forward_any_address: false,
            store: true,
            state_dir: None,
            policy: PolicyConfig::default(),
            oidc: OidcConfig::default(),
            notify: NotifyConfig::default(),
            queues: BTreeMap::new(),
            cluster: ClusterConfig::default(),
            ssh_arguments: Vec::new(),
            process: String::new(),
        }
    }
}

impl Config {
    /// The first invalid queue, with the reason.
    fn validate_queues(&self) -> Option<String> {
        let bad_name = self.queues.keys().find(|name| !is_queue_name(name));
        if let Some(name) = bad_name {
            return Some(format!(
                "{name:?} is not a name for a queue; use letters, digits, '_', '.' and '-'"
            ));
        }
        let is_stopped = self.queues.values().any(|rule| rule.parallel == 0);
        is_stopped.then(|| "parallel must be at least 1".to_owned())
    }

    /// The state directory: the configured one, else `$XDG_STATE_HOME/sshjobs`.
    pub fn state_dir(&self) -> Option<PathBuf> {
        self.state_dir
            .clone()
            .or_else(|| Some(etcetera::choose_base_strategy().ok()?.state_dir()?.join("sshjobs")))
    }

    /// Writes the audit log, if the policy names one. Its checkpoints are copied to `cluster`.
    pub(super) fn auditor(&self, cluster: Option<Arc<dyn Store>>) -> Auditor {
        let configuration = Self::file().and_then(|file| file.parent().map(Path::to_owned));
        Auditor::new(
            self.state_dir(),
            configuration,
            self.process.clone(),
            cluster,
        )
    }

    /// None: this build has no state directory.
    #[cfg(not(feature = "sqlite"))]
    pub(super) fn open_store(&self) -> Option<Result<Arc<dyn Store>, StoreError>> {
        None
    }

    /// Opens the state directory, if storing is enabled.
    #[cfg(feature = "sqlite")]
    pub(super) fn open_store(&self) -> Option<Result<Arc<dyn Store>, StoreError>> {
        if !self.store {
            return None;
        }
        let directory = self.state_dir()?;
        Some(
            StateDir::open(&directory, &self.process)
                .map(|store| Arc::new(store) as Arc<dyn Store>),
        )
    }

    /// The user's own configuration file, `$XDG_CONFIG_HOME/sshjobs/config.toml`. `None` without a
    /// home directory.
    pub fn file() -> Option<PathBuf> {
        let base = etcetera::choose_base_strategy().ok()?;
        Some(base.config_dir().join("sshjobs/config.toml"))
    }

    /// Makes paths of the configuration file relative to its directory, so that it does not matter where
    /// the program is started.
    pub fn resolve_files(&mut self, directory: &Path) {
        if let Some(policy) = &mut self.policy.file {
            *policy = directory.join(&*policy);
        }
        for secret in self.secrets.values_mut() {
            if let SecretSource::File(secret) = &mut secret.source {
                *secret = directory.join(&*secret);
            }
        }
        for login in self.oidc.issuers.iter_mut().filter_map(|issuer| issuer.login.as_mut()) {
            if let Some(secret) = &mut login.client_secret_file {
                *secret = directory.join(&*secret);
            }
        }
        self.notify.resolve_files(directory);
    }

    /// The first invalid value, with the reason, which begins with its key. `None` if all are valid.
    pub fn validate(&self) -> Option<String> {
        let mistakes = [
            self.limits.validate(),
            self.defaults.validate(),
            self.cluster.validate(),
            self.oidc.validate(),
            self.notify.validate(),
            self.validate_queues(),
        ];
        mistakes.into_iter().flatten().next()
    }
}
