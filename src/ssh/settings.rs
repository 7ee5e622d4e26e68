use std::path::PathBuf;

use super::config::Options;
use super::hop::Hop;
use super::{ConfigError, HostOverrides, Resolver, SecretSource};

/// One thing that is set for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// The option, as ssh_config(5) calls it, in lower case.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// Where it is set.
    pub source: Source,
}

/// Where something is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// In the program's own configuration.
    Overrides,
    /// In ssh_config.
    SshConfig,
}

/// The options that a person is shown.
const SHOWN: [&str; 22] = [
    "hostname",
    "port",
    "user",
    "proxyjump",
    "proxycommand",
    "identityfile",
    "certificatefile",
    "identitiesonly",
    "identityagent",
    "passphrase",
    "password",
    "pubkeyauthentication",
    "kbdinteractiveauthentication",
    "passwordauthentication",
    "batchmode",
    "userknownhostsfile",
    "globalknownhostsfile",
    "hostkeyalias",
    "stricthostkeychecking",
    "hashknownhosts",
    "connecttimeout",
    "serveraliveinterval",
];

impl HostOverrides {
    fn shown(&self) -> Vec<(&'static str, String)> {
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

impl Resolver {
    /// What is set for `name`, and where: what differs from ssh's defaults, by the names of ssh_config(5) in lower case.
    pub async fn settings(&self, name: &str) -> Result<Vec<Setting>, ConfigError> {
        let hop = Hop::parse(name)?;
        let set = Options(self.ask_ssh(&hop, &self.arguments).await?);
        let nothing = Self { ssh_config: Some("/dev/null".into()), ..Self::default() };
        let default = Options(nothing.ask_ssh(&hop, &[]).await?);
        let overrides = self.overrides_of(name).shown();
        let setting = |key: &&'static str| {
            let value = |options: &Options| options.all(key).collect::<Vec<_>>().join(", ");
            let (value, usual) = (value(&set), value(&default));
            match overrides.iter().find(|(overridden, _)| overridden == key) {
                Some((_, value)) => Some(Setting { key, value: value.clone(), source: Source::Overrides }),
                // A command line may hold what is nobody's business.
                None if value != usual && *key == "proxycommand" => {
                    Some(Setting { key, value: "a command".to_owned(), source: Source::SshConfig })
                }
                None if value != usual => Some(Setting { key, value, source: Source::SshConfig }),
                None => None,
            }
        };
        Ok(SHOWN.iter().filter_map(setting).collect())
    }
}
