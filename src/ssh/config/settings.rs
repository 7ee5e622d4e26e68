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
}

impl HostSettings {
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
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}

fn shown_path(path: Option<&PathBuf>) -> Option<String> {
    path.map(|path| path.display().to_string())
}
