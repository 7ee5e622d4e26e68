//! The configuration file. An unknown key is an error with file, line and the nearest known
//! key.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use etcetera::BaseStrategy;
use serde::Deserialize;

use super::cluster_config::ClusterConfig;
use super::notify::NotifyConfig;
use super::oidc::OidcConfig;
use super::secrets::SecretConfig;
use crate::admission::Auditor;
use crate::runner::{Limits, QueueRule};
use sshjobs_base::bounded_file::read_trusted_text;
use sshjobs_base::toml_text::{explain, line_of};
use sshjobs_job::is_queue_name;
use sshjobs_ssh::{Endpoint, HostSettings, SecretSource};
use sshjobs_store::{StateDir, Store, StoreError};

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
        let (name, _, most) =
            settings.into_iter().find(|(_, value, most)| !(1..=*most).contains(value))?;
        Some(format!("{name} must be 1 to {most}"))
    }
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            max_lines: 500,
            max_bytes: 32 << 10,
            run_wait_ms: 30_000,
            durable: false,
        }
    }
}

/// Why a configuration file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigFileError {
    /// It can't be read.
    #[error("can't read {}: {source}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// It has an error.
    #[error("{}:{line}: {message}", file.display())]
    Mistake {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// Description of the error. For a misspelt key it names the nearest known one.
        message: String,
    },
}

impl Default for Config {
    fn default() -> Self {
        Self {
            limits: Limits::default(),
            defaults: Defaults::default(),
            hosts: BTreeMap::new(),
            secrets: BTreeMap::new(),
            allow_any_host: false,
            allow_proxy_command: false,
            ssh_config: None,
            transfer_roots: Vec::new(),
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

    /// Opens the state directory, if storing is enabled.
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

    /// Reads `file`. Without it, reads the user's own (`$XDG_CONFIG_HOME/sshjobs/config.toml`),
    /// which need not exist.
    pub fn load(file: Option<&Path>) -> Result<Self, ConfigFileError> {
        let (path, optional) = match file {
            Some(file) => (file.to_owned(), false),
            None => match Self::file() {
                Some(file) => (file, true),
                None => return Ok(Self::default()),
            },
        };
        match read_trusted_text(&path) {
            Ok(text) => Self::parse(&path, &text),
            // Any other error is reported, so that a file without read permission is not ignored.
            Err(error) if optional && error.kind() == io::ErrorKind::NotFound => {
                Ok(Self::default())
            }
            Err(source) => Err(ConfigFileError::Unreadable { file: path, source }),
        }
    }

    /// Parses a configuration. `file` is for error messages.
    pub fn parse(file: &Path, text: &str) -> Result<Self, ConfigFileError> {
        let mistake = |line, message| ConfigFileError::Mistake {
            file: file.to_owned(),
            line,
            message,
        };
        let mut config: Self = toml::from_str(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            mistake(line_of(text, at), explain(error.message()))
        })?;
        // Relative to the configuration, so that it does not matter where the program is started.
        if let (Some(policy), Some(directory)) = (&mut config.policy.file, file.parent()) {
            *policy = directory.join(&*policy);
        }
        for secret in config.secrets.values_mut() {
            if let SecretSource::File(secret) = &mut secret.source
                && let Some(directory) = file.parent()
            {
                *secret = directory.join(&*secret);
            }
        }
        for login in config.oidc.issuers.iter_mut().filter_map(|issuer| issuer.login.as_mut()) {
            if let (Some(secret), Some(directory)) = (&mut login.client_secret_file, file.parent())
            {
                *secret = directory.join(&*secret);
            }
        }
        if let Some(directory) = file.parent() {
            config.notify.resolve_files(directory);
        }
        if let Some(name) = config.secrets.keys().find(|name| !is_name_of_secret(name)) {
            let message = format!(
                "{name:?} is not a name for a secret; use letters, digits, '_', '.' and '-'"
            );
            return Err(mistake(
                line_of(text, text.find("[secrets").unwrap_or(0)),
                message,
            ));
        }
        let mistakes = [
            config.limits.validate(),
            config.defaults.validate(),
            config.cluster.validate(),
            config.oidc.validate(),
            config.notify.validate(),
            config.validate_queues(),
        ];
        match mistakes.into_iter().flatten().next() {
            Some(message) => {
                // The message begins with the key. If the file omits that key, line 1 is reported.
                let key = message.split(' ').next().unwrap_or_default();
                Err(mistake(line_of_key(text, key), message))
            }
            None => Ok(config),
        }
    }
}

/// The line that sets a key, or 1 if the file omits the key.
fn line_of_key(text: &str, key: &str) -> usize {
    let index = text.lines().position(|line| sets_key(line, key));
    index.map_or(1, |index| index + 1)
}

fn sets_key(line: &str, key: &str) -> bool {
    let after_key = line.trim_start().strip_prefix(key);
    after_key.is_some_and(|rest| rest.trim_start().starts_with('='))
}

fn is_name_of_secret(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || "_.-".contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Config::parse(Path::new("c.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_full_file_is_read() {
        let config = Config::parse(
            Path::new("c.toml"),
            "allow_any_host = true\n[limits]\nmax_jobs = 5\n[defaults]\nmax_lines = 10\n[hosts.web1]\nport = 2222\n",
        )
        .unwrap();
        assert_eq!((config.limits.max_jobs, config.defaults.max_lines), (5, 10));
        assert_eq!(config.hosts["web1"].port, Some(2222));
    }

    #[test]
    fn a_misspelt_key_is_named_with_file_line_and_the_nearest_known_key() {
        let text = "[limits]\nmax_jobs = 5\nring_buffer_line = 10\n";
        assert_eq!(
            error(text),
            "c.toml:3: unknown key \"ring_buffer_line\"; did you mean \"ring_buffer_lines\"?"
        );
        assert_eq!(
            error("[limit]\n"),
            "c.toml:1: unknown key \"limit\"; did you mean \"limits\"?"
        );
        assert_eq!(
            error("[hosts.a]\nprot = 22\n"),
            "c.toml:2: unknown key \"prot\"; did you mean \"port\"?"
        );
        assert_eq!(error("zzz = 1\n"), "c.toml:1: unknown key \"zzz\"");
    }

    #[test]
    fn a_value_out_of_range_is_refused_with_its_line() {
        assert!(error("[limits]\nmax_jobs = 0\n").starts_with("c.toml:2: max_jobs must be"));
        assert_eq!(
            error("[defaults]\nmax_lines = 20000\n"),
            "c.toml:2: max_lines must be 1 to 10000"
        );
        assert_eq!(
            error("[limits]\nmax_jobs = -1\n"),
            "c.toml:2: found integer `-1`, expected a whole number"
        );
        assert_eq!(
            error("[hosts.a]\nport = \"22\"\n"),
            "c.toml:2: found string \"22\", expected a whole number"
        );
        assert!(
            error("\n[limits]\nring_buffer_bytes = 1000\n")
                .starts_with("c.toml:3: ring_buffer_bytes must be")
        );
        assert!(error("[hosts.a]\nport = 70000\n").starts_with("c.toml:2: "));
    }

    #[test]
    fn a_secret_written_into_the_configuration_is_not_repeated() {
        for value in [
            "\"hunter2\"",
            "{ hunter2 = true }",
            "{ hunter2 = \"x\" }",
            "[\"hunter2\"]",
            "{ env = \"A\", file = \"hunter2\" }",
        ] {
            let error = error(&format!("[hosts.a]\npassword = {value}\n"));
            assert!(
                error.starts_with("c.toml:2: a secret comes from") && !error.contains("hunter2"),
                "{error}"
            );
        }
        let config = Config::parse(
            Path::new("c.toml"),
            "[hosts.a]\npassword = { command = \"pass hunter2\" }\n",
        )
        .unwrap();
        assert!(config.hosts["a"].password.is_some() && !format!("{config:?}").contains("hunter2"));
    }

    #[test]
    fn a_named_secret_has_one_source_and_is_never_repeated() {
        for (value, expected) in [
            ("\"hunter2\"", "a secret is a table"),
            ("{ value = \"hunter2\" }", "unknown key \"value\""),
            ("{ file = \"hunter2\", env = \"A\" }", "a secret is a table"),
            ("{ file = [\"hunter2\"] }", "a secret is a table"),
            (
                "{ env = \"A\", scrub = \"hunter2\" }",
                "hosts and callers of a secret are lists",
            ),
            ("{ env = \"A\", hosts = [\",\"] }", "hosts has \",\""),
            ("{ env = \"A\", hosts = [] }", "hosts is empty"),
            (
                "{ env = \"A\", callers = [\"role:nobody\"] }",
                "unknown role \"nobody\"",
            ),
        ] {
            let error = error(&format!("\n[secrets]\ndb = {value}\n"));
            assert!(
                error.starts_with("c.toml:3: ") && error.contains(expected),
                "{error}"
            );
            assert!(!error.contains("hunter2"), "{error}");
        }
        assert!(error("[secrets.'a b']\nenv = \"A\"\n").contains("not a name for a secret"));

        let text = "[secrets.db]\nfile = \"db\"\nhosts = [\"prod-*\"]\ncallers = [\"role:admin\"]\nscrub = false\n";
        let config = Config::parse(Path::new("/etc/c.toml"), text).unwrap();
        let secret = &config.secrets["db"];
        assert_eq!(secret.source, SecretSource::File("/etc/db".into()));
        assert!(secret.hosts.contain("prod-1", &[]) && !secret.hosts.contain("web1", &[]));
        assert!(!secret.scrub && secret.callers.len() == 1);
    }

    #[test]
    fn a_named_file_must_exist() {
        let directory = tempfile::tempdir().unwrap();
        let missing = directory.path().join("missing");
        assert!(matches!(
            Config::load(Some(&missing)),
            Err(ConfigFileError::Unreadable { .. })
        ));
    }
}
