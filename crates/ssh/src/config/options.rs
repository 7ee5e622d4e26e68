//! Converts the output of `ssh -G` into a `HostConfig`, and refuses options that would be
//! ignored at a risk.

use std::path::PathBuf;
use std::time::Duration;

use super::destination::{Destination, check_name, check_user};
use super::expand::Expander;
use super::host_config::{CONNECT_TIMEOUT, KEEPALIVE, SHORTEST_RSA};
use super::{ConfigError, HostConfig, HostSettings, Methods};

/// Lines printed by `ssh -G`.
pub(super) struct SshOptions(pub(super) Vec<(String, String)>);

impl SshOptions {
    /// Refuses options that are not supported and must not be ignored.
    pub(super) fn refuse(
        &self,
        name: &str,
        unsupported: &[&'static str],
    ) -> Result<(), ConfigError> {
        match unsupported.iter().find(|option: &&&str| {
            self.get(&option.to_lowercase()).is_some_and(|value| value != "none")
        }) {
            Some(option) => Err(ConfigError::Unsupported {
                name: name.to_owned(),
                option,
            }),
            None => Ok(()),
        }
    }

    /// The jump hosts, in order.
    pub(super) fn jumps(&self) -> Option<&str> {
        self.get("proxyjump").filter(|jumps| *jumps != "none")
    }

    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn get_owned(&self, key: &str) -> Option<String> {
        self.get(key).map(str::to_owned)
    }

    pub(super) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0
            .iter()
            .filter(move |(known, _)| known == key)
            .map(|(_, value)| value.as_str())
    }

    /// Converts options into a configuration, with the program's own settings over them. Examines
    /// which files exist.
    pub(super) fn to_config(
        &self,
        proxy_commands: bool,
        destination: &Destination,
        settings: &HostSettings,
    ) -> Result<HostConfig, ConfigError> {
        let name = &destination.host;
        let hostname = self.get_owned("hostname");
        let address = settings.address.clone().or(hostname).unwrap_or_else(|| name.clone());
        let port = settings
            .port
            .or(self.get("port").and_then(|port| port.parse().ok()))
            .unwrap_or(22);
        let user = self.get_owned("user");
        let user = settings.user.clone().or(user).unwrap_or_default();
        // A ProxyCommand may get both in a shell command, by `%h` and `%r`.
        check_name(&address)?;
        check_user(&user)?;
        let mut expander = Expander {
            name,
            address: &address,
            port,
            user: &user,
            alias: None,
            jumps: self.jumps(),
        };
        let alias = self.get_owned("hostkeyalias").filter(|alias| alias != "none");
        let alias = alias.map(|alias| expander.tokens(&alias)).transpose()?;
        // Only now, because the alias itself may contain tokens.
        expander.alias = alias.as_deref();
        let proxy_command = self.get_owned("proxycommand").filter(|command| command != "none");
        if proxy_command.is_some() && !proxy_commands {
            return Err(ConfigError::ProxyCommand { name: name.clone() });
        }
        let bits = self.get("requiredrsasize").and_then(|bits| bits.parse().ok());
        Ok(HostConfig {
            proxy_command: proxy_command.map(|command| expander.tokens(&command)).transpose()?,
            passphrase: settings.passphrase.clone(),
            password: settings.password.clone(),
            become_password: settings.become_password.clone(),
            methods: self.methods(),
            shortest_rsa: bits.map_or(SHORTEST_RSA, |bits: u32| bits.max(SHORTEST_RSA)),
            host_key_algorithms: self.get_owned("hostkeyalgorithms"),
            ca_signature_algorithms: self.get_owned("casignaturealgorithms"),
            // Every other value counts as `yes`. With `no` and `off` ssh accepts unknown keys; we never do.
            accept_new: self.get("stricthostkeychecking") == Some("accept-new"),
            hash_known_hosts: self.is("hashknownhosts"),
            connect_timeout: seconds(self.get("connecttimeout")).unwrap_or(CONNECT_TIMEOUT),
            keepalive: seconds(self.get("serveraliveinterval")).unwrap_or(KEEPALIVE),
            host_key_alias: alias.clone(),
            ..self.with_files(
                HostConfig::new(name, &address, port, &user),
                settings,
                &expander,
            )?
        })
    }

    /// The paths of an option that is given once for each.
    fn paths(&self, key: &str, expander: &Expander<'_>) -> Result<Vec<PathBuf>, ConfigError> {
        let files = self.all(key).filter(|file| *file != "none");
        files.map(|file| expander.path(file)).collect()
    }

    /// The paths of an option whose value is a list.
    fn list_of_paths(
        &self,
        key: &str,
        expander: &Expander<'_>,
    ) -> Result<Vec<PathBuf>, ConfigError> {
        self.get(key).map_or(Ok(Vec::new()), |files| expander.paths(files))
    }

    /// Adds the files of keys, certificates and hosts, and the agent's socket.
    fn with_files(
        &self,
        config: HostConfig,
        settings: &HostSettings,
        expander: &Expander<'_>,
    ) -> Result<HostConfig, ConfigError> {
        let (users, global) = match &settings.known_hosts {
            Some(path) => (vec![expander.path(&path.to_string_lossy())?], Vec::new()),
            None => (
                self.list_of_paths("userknownhostsfile", expander)?,
                self.list_of_paths("globalknownhostsfile", expander)?,
            ),
        };
        Ok(HostConfig {
            identity_files: match &settings.identity_file {
                Some(path) => vec![expander.path(&path.to_string_lossy())?],
                None => self.paths("identityfile", expander)?,
            },
            identities_only: settings.identity_file.is_some() || self.is("identitiesonly"),
            certificate_files: self.paths("certificatefile", expander)?,
            agent: agent_socket(self.get("identityagent"), expander)?,
            own_known_hosts: users.first().cloned(),
            known_hosts: [users, global].concat(),
            ..config
        })
    }

    /// Whether an option is on or unset.
    fn is_on_by_default(&self, key: &str) -> bool {
        self.get(key).is_none() || self.is(key)
    }

    /// Whether an option is on. ssh prints `yes` or `true`.
    pub(super) fn is(&self, key: &str) -> bool {
        matches!(self.get(key), Some("yes" | "true"))
    }

    fn methods(&self) -> Methods {
        let prompts = self
            .get("numberofpasswordprompts")
            .and_then(|prompts| prompts.parse().ok())
            .unwrap_or(3);
        Methods {
            // ssh also prints `unbound` and `host-bound`, which are variants of `yes`.
            public_key: self
                .get("pubkeyauthentication")
                .is_none_or(|value| !matches!(value, "no" | "false")),
            keyboard_interactive: self.is_on_by_default("kbdinteractiveauthentication"),
            password: self.is_on_by_default("passwordauthentication"),
            prompts: if self.is("batchmode") { 0 } else { prompts },
        }
    }
}

fn seconds(value: Option<&str>) -> Option<Duration> {
    // 0, which means no limit in ssh, counts as unset: every wait here needs a limit.
    value?.parse().ok().filter(|&seconds| seconds > 0).map(Duration::from_secs)
}

fn agent_socket(
    option: Option<&str>,
    expander: &Expander<'_>,
) -> Result<Option<PathBuf>, ConfigError> {
    let socket = match option {
        Some("none") => None,
        None | Some("SSH_AUTH_SOCK") => path_in("SSH_AUTH_SOCK"),
        Some(option) => match option.strip_prefix('$') {
            // `$NAME` stands for the unchanged value. `${NAME}` is expanded like any path.
            Some(name) if !name.starts_with('{') => path_in(name),
            _ => Some(expander.path(option)?),
        },
    };
    Ok(socket.filter(|path| !path.as_os_str().is_empty()))
}

/// The path in an environment variable.
fn path_in(variable: &str) -> Option<PathBuf> {
    std::env::var_os(variable).map(PathBuf::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(lines: &str, settings: &HostSettings) -> HostConfig {
        let pairs = lines.lines().filter_map(|line| line.split_once(' '));
        let host = Destination {
            host: "web1".to_owned(),
            user: None,
            port: None,
        };
        SshOptions(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
            .to_config(false, &host, settings)
            .unwrap()
    }

    #[test]
    fn ssh_decides_unless_overridden() {
        let lines = "user deploy\nhostname 10.0.0.9\nport 2200\nidentityfile /k1\nidentityfile /k2\n\
                     userknownhostsfile /u1 /u2\nglobalknownhostsfile /g\nhostkeyalias web\nconnecttimeout 3";
        let config = resolve(lines, &HostSettings::default());
        assert_eq!(
            (&*config.address, config.port, &*config.user),
            ("10.0.0.9", 2200, "deploy")
        );
        assert_eq!(config.identity_files, ["/k1", "/k2"].map(PathBuf::from));
        assert_eq!(config.known_hosts, ["/u1", "/u2", "/g"].map(PathBuf::from));
        assert_eq!(config.host_key_alias.as_deref(), Some("web"));
        assert_eq!(config.connect_timeout, Duration::from_secs(3));

        let settings = HostSettings {
            port: Some(22),
            user: Some("ci".into()),
            ..HostSettings::default()
        };
        let config = resolve(lines, &settings);
        assert_eq!(
            (&*config.address, config.port, &*config.user),
            ("10.0.0.9", 22, "ci")
        );
    }
}
