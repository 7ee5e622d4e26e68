use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// Everything that is needed to reach a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostConfig {
    /// What the user calls it.
    pub name: String,
    /// Name or address to connect to.
    pub address: String,
    /// TCP port.
    pub port: u16,
    /// The account.
    pub user: String,
    /// Private keys to try, in order. Those that don't exist are passed over.
    pub identity_files: Vec<PathBuf>,
    /// Offer keys of the agent only when they are among the identity files.
    pub identities_only: bool,
    /// The agent's socket, if one is to be asked.
    pub agent: Option<PathBuf>,
    /// known_hosts files; one that doesn't exist counts as empty.
    pub known_hosts: Vec<PathBuf>,
    /// The name to look up in known_hosts instead of the address.
    pub host_key_alias: Option<String>,
    /// A host that known_hosts does not know at all is taken at its first word (`StrictHostKeyChecking accept-new`).
    pub accept_new: bool,
    /// Names are hashed when they are written into known_hosts (HashKnownHosts).
    pub hash_known_hosts: bool,
    /// How long connecting, and each later step, may take.
    pub connect_timeout: Duration,
    /// After this much silence the server is asked for a sign of life; after three without answer the connection is
    /// lost.
    pub keepalive: Duration,
    /// The host through which this one is reached (ProxyJump); it may have one itself.
    pub jump: Option<Box<Self>>,
}

impl HostConfig {
    /// Who is reached where, and through whom: `user@address:port via …`.
    pub fn route(&self) -> String {
        let own = format!("{}@{}:{}", self.user, self.address, self.port);
        match &self.jump {
            Some(jump) => format!("{own} via {}", jump.route()),
            None => own,
        }
    }
}

/// What the program's own configuration says about a host, over what ssh_config says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HostOverrides {
    /// Name or address to connect to.
    pub address: Option<String>,
    /// TCP port.
    pub port: Option<u16>,
    /// The account.
    pub user: Option<String>,
    /// The private key to use.
    pub identity_file: Option<PathBuf>,
    /// The known_hosts file to use.
    pub known_hosts: Option<PathBuf>,
}

/// Why a host's name could not be turned into a [`HostConfig`].
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text can't be a host's name.
    #[error("{0:?} is not a host name")]
    BadName(String),
    /// There is no `ssh` program to ask.
    #[error("the ssh program, which resolves host names, can't be run")]
    NoSsh(#[source] io::Error),
    /// `ssh -G` failed: ssh_config has a mistake.
    #[error("ssh can't resolve {name}: {message}")]
    Rejected {
        /// The host.
        name: String,
        /// What ssh said.
        message: String,
    },
    /// The hosts to jump through have no end.
    #[error("{0} is reached through more than {MOST_JUMPS} other hosts, or through itself")]
    TooManyJumps(String),
    /// ssh did not answer.
    #[error("ssh took longer than {0:?} to resolve the host")]
    TimedOut(Duration),
    /// The configuration asks for something that is not built yet, and ignoring it would be wrong.
    #[error("{name} is configured with {option}, which sshjobs does not support yet")]
    Unsupported {
        /// The host.
        name: String,
        /// The option of ssh_config.
        option: &'static str,
    },
}

/// So many hosts may lie between us and another.
const MOST_JUMPS: usize = 8;
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Turns names into [`HostConfig`]s by asking `ssh -G`, so that they mean what they mean to ssh.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    /// The ssh_config file instead of the user's and the system's.
    pub ssh_config: Option<PathBuf>,
}

impl Resolver {
    /// Resolves `name`, with `overrides` over what ssh_config says. Runs `ssh -G`, within 10 s.
    pub async fn resolve(&self, name: &str, overrides: &HostOverrides) -> Result<HostConfig, ConfigError> {
        check_name(name)?;
        let target = overrides.address.as_deref().unwrap_or(name);
        check_name(target)?;
        let hop = Hop { host: name.to_owned(), user: None, port: None };
        let options = Options(self.ask_ssh(&hop).await?);
        options.refuse(name, &["ProxyCommand", "RemoteCommand"])?;
        let jump = match options.jumps() {
            Some(jumps) => Some(Box::new(self.resolve_jumps(name, jumps, 1).await?)),
            None => None,
        };
        Ok(HostConfig { jump, ..options.to_config(name, overrides) })
    }

    /// Resolves the last of the hosts to jump through, which is reached through those before it. The first is reached as its
    /// own configuration says, as with ssh.
    fn resolve_jumps<'a>(
        &'a self,
        name: &'a str,
        jumps: &'a str,
        depth: usize,
    ) -> Pin<Box<dyn Future<Output = Result<HostConfig, ConfigError>> + Send + 'a>> {
        Box::pin(async move {
            if depth > MOST_JUMPS {
                return Err(ConfigError::TooManyJumps(name.to_owned()));
            }
            let (before, last) =
                jumps.rsplit_once(',').map_or((None, jumps), |(before, last)| (Some(before), last));
            let hop = Hop::parse(last)?;
            let options = Options(self.ask_ssh(&hop).await?);
            options.refuse(&hop.host, &["ProxyCommand"])?;
            let jump = match before.or(options.jumps()) {
                Some(jumps) => Some(Box::new(self.resolve_jumps(name, jumps, depth + 1).await?)),
                None => None,
            };
            Ok(HostConfig { jump, ..options.to_config(&hop.host, &HostOverrides::default()) })
        })
    }

    async fn ask_ssh(&self, hop: &Hop) -> Result<Vec<(String, String)>, ConfigError> {
        let mut ssh = Command::new("ssh");
        if let Some(file) = &self.ssh_config {
            ssh.arg("-F").arg(file);
        }
        if let Some(user) = &hop.user {
            ssh.args(["-l", user]);
        }
        if let Some(port) = hop.port {
            ssh.args(["-p", &port.to_string()]);
        }
        ssh.args(["-G", &hop.host]).stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(RESOLVE_TIMEOUT, ssh.output())
            .await
            .map_err(|_| ConfigError::TimedOut(RESOLVE_TIMEOUT))?
            .map_err(ConfigError::NoSsh)?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).trim().replace('\n', "; ");
            return Err(ConfigError::Rejected { name: hop.host.clone(), message });
        }
        Ok(String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
            .collect())
    }
}

/// A host as ProxyJump names it: `[user@]host[:port]`, or the same as a URI.
#[derive(Debug, PartialEq, Eq)]
struct Hop {
    host: String,
    user: Option<String>,
    port: Option<u16>,
}

impl Hop {
    fn parse(text: &str) -> Result<Self, ConfigError> {
        let bad = || ConfigError::BadName(text.to_owned());
        let bare = text.strip_prefix("ssh://").unwrap_or(text).trim_end_matches('/');
        let (user, place) =
            bare.rsplit_once('@').map_or((None, bare), |(user, place)| (Some(user.to_owned()), place));
        let (host, port) = match place.strip_prefix('[').and_then(|place| place.split_once(']')) {
            Some((host, "")) => (host, None),
            Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(bad)?)),
            None => match place.split_once(':') {
                Some((host, port)) if !port.contains(':') => (host, Some(port)),
                _ => (place, None),
            },
        };
        let port = port.map(|port| port.parse().map_err(|_| bad())).transpose()?;
        check_name(host)?;
        user.as_deref().map(check_name).transpose()?;
        Ok(Self { host: host.to_owned(), user, port })
    }
}

/// The lines of `ssh -G`.
struct Options(Vec<(String, String)>);

impl Options {
    /// Refuses what can't be done and must not be ignored.
    fn refuse(&self, name: &str, unsupported: &[&'static str]) -> Result<(), ConfigError> {
        let set = |option: &&&str| self.get(&option.to_lowercase()).is_some_and(|value| value != "none");
        match unsupported.iter().find(set) {
            Some(option) => Err(ConfigError::Unsupported { name: name.to_owned(), option }),
            None => Ok(()),
        }
    }

    /// The hosts to jump through, in their order.
    fn jumps(&self) -> Option<&str> {
        self.get("proxyjump").filter(|jumps| *jumps != "none")
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn to_config(&self, name: &str, overrides: &HostOverrides) -> HostConfig {
        let own = |key| self.get(key).map(str::to_owned);
        let files = |keys: [&str; 2]| {
            let values = keys.into_iter().flat_map(|key| self.get(key)).flat_map(str::split_whitespace);
            values.filter(|file| *file != "none").map(expand_home).collect()
        };
        HostConfig {
            name: name.to_owned(),
            address: overrides.address.clone().or(own("hostname")).unwrap_or_else(|| name.to_owned()),
            port: overrides.port.or(self.get("port").and_then(|port| port.parse().ok())).unwrap_or(22),
            user: overrides.user.clone().or(own("user")).unwrap_or_default(),
            identity_files: match &overrides.identity_file {
                Some(file) => vec![expand_home(&file.to_string_lossy())],
                None => self.all("identityfile").map(expand_home).collect(),
            },
            identities_only: overrides.identity_file.is_some() || self.get("identitiesonly") == Some("yes"),
            agent: agent_socket(self.get("identityagent")),
            known_hosts: match &overrides.known_hosts {
                Some(file) => vec![expand_home(&file.to_string_lossy())],
                None => files(["userknownhostsfile", "globalknownhostsfile"]),
            },
            host_key_alias: own("hostkeyalias").filter(|alias| alias != "none"),
            accept_new: self.get("stricthostkeychecking") == Some("accept-new"),
            hash_known_hosts: self.get("hashknownhosts") == Some("yes"),
            connect_timeout: seconds(self.get("connecttimeout")).unwrap_or(CONNECT_TIMEOUT),
            keepalive: seconds(self.get("serveraliveinterval")).unwrap_or(KEEPALIVE),
            jump: None,
        }
    }
}

/// A name must not be taken for an option, nor for anything else, by the program that resolves it.
fn check_name(name: &str) -> Result<(), ConfigError> {
    let strange = |c: char| c.is_control() || c.is_whitespace() || "'\"\\`$;&|<>(){}".contains(c);
    if name.is_empty() || name.starts_with('-') || name.len() > 255 || name.contains(strange) {
        return Err(ConfigError::BadName(name.to_owned()));
    }
    Ok(())
}

fn seconds(value: Option<&str>) -> Option<Duration> {
    value?.parse().ok().filter(|&seconds| seconds > 0).map(Duration::from_secs)
}

fn agent_socket(option: Option<&str>) -> Option<PathBuf> {
    match option {
        Some("none") => None,
        None | Some("SSH_AUTH_SOCK") => std::env::var_os("SSH_AUTH_SOCK").map(PathBuf::from),
        Some(path) => Some(expand_home(path)),
    }
    .filter(|path| !path.as_os_str().is_empty())
}

/// `~/` leads to the home directory.
fn expand_home(path: &str) -> PathBuf {
    match (path.strip_prefix("~/"), etcetera::home_dir()) {
        (Some(rest), Ok(home)) => home.join(rest),
        _ => Path::new(path).to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(lines: &str, overrides: &HostOverrides) -> HostConfig {
        let pairs = lines.lines().filter_map(|line| line.split_once(' '));
        Options(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
            .to_config("web1", overrides)
    }

    #[test]
    fn ssh_decides_unless_overridden() {
        let lines = "user deploy\nhostname 10.0.0.9\nport 2200\nidentityfile /k1\nidentityfile /k2\n\
                     userknownhostsfile /u1 /u2\nglobalknownhostsfile /g\nhostkeyalias web\nconnecttimeout 3";
        let config = resolve(lines, &HostOverrides::default());
        assert_eq!((&*config.address, config.port, &*config.user), ("10.0.0.9", 2200, "deploy"));
        assert_eq!(config.identity_files, ["/k1", "/k2"].map(PathBuf::from));
        assert_eq!(config.known_hosts, ["/u1", "/u2", "/g"].map(PathBuf::from));
        assert_eq!(config.host_key_alias.as_deref(), Some("web"));
        assert_eq!(config.connect_timeout, Duration::from_secs(3));

        let overrides = HostOverrides { port: Some(22), user: Some("ci".into()), ..HostOverrides::default() };
        let config = resolve(lines, &overrides);
        assert_eq!((&*config.address, config.port, &*config.user), ("10.0.0.9", 22, "ci"));
    }

    #[test]
    fn a_jump_host_is_named_in_every_form_that_ssh_takes() {
        let parse = |text| Hop::parse(text).map(|hop| (hop.user, hop.host, hop.port));
        let user = || Some("me".to_owned());
        assert_eq!(parse("bastion").unwrap(), (None, "bastion".into(), None));
        assert_eq!(parse("me@bastion:2222").unwrap(), (user(), "bastion".into(), Some(2222)));
        assert_eq!(parse("ssh://me@bastion:2222/").unwrap(), (user(), "bastion".into(), Some(2222)));
        assert_eq!(parse("me@[::1]:22").unwrap(), (user(), "::1".into(), Some(22)));
        assert_eq!(parse("::1").unwrap(), (None, "::1".into(), None));
        for bad in ["", "@host", "host:port", "host:99999", "-oX=y", "a b", "[::1]x", "me@-x"] {
            assert!(parse(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn names_that_could_mean_something_to_a_program_are_refused() {
        for name in ["", "-oProxyCommand=x", "a b", "a\nb", "$(x)", "a;b", "`x`"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["web1", "10.0.0.1", "user.example.org", "::1", "web_1"] {
            assert!(check_name(name).is_ok(), "{name:?}");
        }
    }
}
