use std::path::PathBuf;

use serde::Deserialize;

use super::SecretSource;

/// Settings of a host in the program's own configuration (`[hosts.NAME]`), which override
/// ssh_config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HostSettings {
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
    /// Source of the keys' passphrase.
    pub passphrase: Option<SecretSource>,
    /// Source of the password.
    pub password: Option<SecretSource>,
    /// Source of the password for sudo, doas or su.
    pub become_password: Option<SecretSource>,
    /// Tags by which callers select the host.
    pub tags: Vec<String>,
    /// Commands that a job's shell runs first, such as `module load cuda`.
    pub env_setup: Option<String>,
}

impl HostSettings {
    /// The settings that no argument of ssh overrides.
    pub(super) fn without_overridden(&self, arguments: &[String]) -> Self {
        let mut settings = self.clone();
        for pair in arguments.windows(2) {
            let [option, value] = pair else { continue };
            let keyword = match option.as_str() {
                "-p" => "port".to_owned(),
                "-l" => "user".to_owned(),
                "-i" => "identityfile".to_owned(),
                "-o" => keyword_of(value),
                _ => continue,
            };
            match keyword.as_str() {
                "hostname" => settings.address = None,
                "port" => settings.port = None,
                "user" => settings.user = None,
                "identityfile" => settings.identity_file = None,
                "userknownhostsfile" => settings.known_hosts = None,
                _ => {}
            }
        }
        settings
    }

    /// The configured settings, with the names of ssh_config(5) in lower case. For secrets, their
    /// sources.
    pub(super) fn shown(&self) -> Vec<(&'static str, String)> {
        let all = [
            ("hostname", self.address.clone()),
            ("port", self.port.map(|port| port.to_string())),
            ("user", self.user.clone()),
            ("identityfile", shown_path(self.identity_file.as_ref())),
            ("userknownhostsfile", shown_path(self.known_hosts.as_ref())),
            (
                "passphrase",
                self.passphrase.as_ref().map(ToString::to_string),
            ),
            ("password", self.password.as_ref().map(ToString::to_string)),
            (
                "become_password",
                self.become_password.as_ref().map(ToString::to_string),
            ),
            ("env_setup", self.env_setup.clone()),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

fn shown_path(path: Option<&PathBuf>) -> Option<String> {
    path.map(|path| path.display().to_string())
}

/// The keyword of an argument of `-o`, such as `Port=22` or `Port 22`, in lower case.
fn keyword_of(option: &str) -> String {
    let keyword = option.trim_start().split(|c: char| c == '=' || c.is_whitespace()).next();
    keyword.unwrap_or_default().to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_ssh_go_before_the_settings() {
        let settings = HostSettings {
            port: Some(22),
            user: Some("root".to_owned()),
            address: Some("10.0.0.1".to_owned()),
            ..HostSettings::default()
        };
        let arguments = [
            "-l",
            "deploy",
            "-o",
            "Port 2222",
            "-o",
            "hostName=web1",
            "-J",
            "bastion",
        ];

        let left = settings.without_overridden(&arguments.map(str::to_owned));

        assert_eq!((left.port, left.user, left.address), (None, None, None));
        let other = ["-o".to_owned(), "Compression=yes".to_owned()];
        assert_eq!(settings.without_overridden(&other).port, Some(22));
    }
}
