use super::destination::Destination;
use super::options::SshOptions;
use super::table::SHOWN;
use super::{ConfigError, Resolver};

/// One setting of a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Name of the option in ssh_config(5), in lower case.
    pub key: &'static str,
    /// Its value.
    pub value: String,
    /// Where it was set.
    pub source: SettingSource,
}

/// Where a setting comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SettingSource {
    /// The program's own configuration.
    Settings,
    /// ssh_config.
    SshConfig,
}

impl Resolver {
    /// The settings of `name` that differ from ssh's defaults, with their sources and the names of
    /// ssh_config(5) in lower case.
    pub async fn settings(&self, name: &str) -> Result<Vec<Setting>, ConfigError> {
        let destination = Destination::parse(name)?;
        let set = SshOptions(self.ask_ssh(&destination, &self.arguments).await?);
        // With `-F` ssh ignores the system's file, too, and prints its own defaults.
        let nothing = Self {
            ssh_config: Some("/dev/null".into()),
            ..Self::default()
        };
        let default = SshOptions(nothing.ask_ssh(&destination, &[]).await?);
        let own = self.settings_of(name).without_overridden(&self.arguments).shown();
        let setting = |key: &&'static str| {
            let value = value_of(&set, key);
            let usual = value_of(&default, key);
            match own.iter().find(|(known, _)| known == key) {
                Some((_, value)) => Some(Setting {
                    key,
                    value: value.clone(),
                    source: SettingSource::Settings,
                }),
                None if value == "none" && key.starts_with("proxy") => None,
                // A command line may contain a secret.
                None if value != usual && *key == "proxycommand" => Some(Setting {
                    key,
                    value: "a command".to_owned(),
                    source: SettingSource::SshConfig,
                }),
                None if value != usual => Some(Setting {
                    key,
                    value,
                    source: SettingSource::SshConfig,
                }),
                None => None,
            }
        };
        Ok(SHOWN.iter().filter_map(setting).collect())
    }
}

/// All values of an option, separated by commas.
fn value_of(options: &SshOptions, key: &str) -> String {
    options.all(key).collect::<Vec<_>>().join(", ")
}
