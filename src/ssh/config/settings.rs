use std::path::PathBuf;

use serde::Deserialize;

use super::SecretSource;

/// What the program's own configuration says about a host (`[hosts.NAME]`), over what ssh_config says.
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
    /// Where the passphrase of the keys comes from.
    pub passphrase: Option<SecretSource>,
    /// Where the password comes from.
    pub password: Option<SecretSource>,
    /// Words to find the host by.
    pub tags: Vec<String>,
}

impl HostSettings {
    /// What is set, under the names of ssh_config(5) in lower case. Of secrets where they come from.
    pub(super) fn shown(&self) -> Vec<(&'static str, String)> {
        let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let secret = |secret: &Option<SecretSource>| secret.as_ref().map(ToString::to_string);
        let all = [
            ("hostname", self.address.clone()),
            ("port", self.port.map(|port| port.to_string())),
            ("user", self.user.clone()),
            ("identityfile", path(&self.identity_file)),
            ("userknownhostsfile", path(&self.known_hosts)),
            ("passphrase", secret(&self.passphrase)),
            ("password", secret(&self.password)),
        ];
        all.into_iter().filter_map(|(key, value)| Some((key, value?))).collect()
    }
}
