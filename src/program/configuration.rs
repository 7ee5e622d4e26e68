//! The configuration: its file, and the options and variables that override it.

use std::path::PathBuf;

use sshjobs_cli::{Cli, CliVerb, HostsArgs, HostsVerb, Override, Overrides};
use sshjobs_core::jobs::Config;
use sshjobs_wire::{Code, ConfigFileError, Error, load_config};

/// Reads the configuration file, and applies the options that override it.
///
/// # Errors
/// [`Code::InvalidArgument`] if the file can't be read or has a mistake.
pub(super) fn load(cli: &Cli) -> Result<Config, Error> {
    // These verbs create the file.
    let creates = matches!(
        cli.verb,
        CliVerb::Init(_)
            | CliVerb::Hosts(HostsArgs {
                verb: Some(HostsVerb::Add(_)),
                ..
            })
    );
    let file = cli.global.config.as_deref().filter(|file| !creates || file.exists());
    let mut config = load_config(file).map_err(|error| {
        Error::new(
            Code::InvalidArgument,
            error.to_string(),
            match error {
                ConfigFileError::Unreadable { .. } => "check the path, and that you may read it",
                ConfigFileError::Mistake { .. } => {
                    "correct the configuration; docs/config.md lists all keys"
                }
            },
        )
    })?;
    config.ssh_config = cli.global.ssh_config.clone().or(config.ssh_config);
    config.process = format!("sshjobs {}", cli.verb_name);
    config.state_dir = cli.global.state_dir.clone().or(config.state_dir);
    config.policy.file = cli.global.policy.clone().or(config.policy.file);
    Ok(config)
}

/// Values of the command line and of variables that override the configuration file.
pub(super) fn overrides(cli: &Cli) -> Overrides {
    Overrides {
        file: path_of(cli.global.config.as_ref(), "--config", "SSHJOBS_CONFIG"),
        // No variable names an ssh_config.
        ssh_config: path_of(cli.global.ssh_config.as_ref(), "--ssh-config", ""),
        state_dir: path_of(
            cli.global.state_dir.as_ref(),
            "--state-dir",
            "SSHJOBS_STATE_DIR",
        ),
    }
}

/// A path that an option or a variable gives, and which of the two.
fn path_of(
    value: Option<&PathBuf>,
    option: &'static str,
    variable: &'static str,
) -> Option<Override> {
    let value = value?.clone();
    let is_variable = std::env::var_os(variable).is_some_and(|set| set == value);
    Some(Override {
        value,
        source: if is_variable { variable } else { option },
    })
}
