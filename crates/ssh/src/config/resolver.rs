//! Resolves names by running `ssh -G`, including jump hosts.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::destination::Destination;
use super::error::MOST_JUMPS;
use super::options::SshOptions;
use super::{ConfigError, HostConfig, HostSettings, fallback};
use crate::files::off_runtime;

const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
/// What ssh says for a user id without a name, as in containers that run as any user. It then does nothing.
const NAMELESS: &[u8] = b"No user exists for uid";

/// Turns names into [`HostConfig`]s with `ssh -G`, so that they mean the same as to ssh.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    /// An ssh_config file that replaces the user's and the system's.
    pub ssh_config: Option<PathBuf>,
    /// Settings that override ssh_config, by host, including jump hosts.
    pub settings: BTreeMap<String, HostSettings>,
    /// Whether ProxyCommand may be used.
    pub proxy_commands: bool,
    /// More arguments for `ssh -G`, such as `-o` and an option. They apply to the host itself and
    /// not to its jump hosts.
    pub arguments: Vec<String>,
}

impl Resolver {
    /// Reads ssh_config without the help of ssh.
    async fn read_ourselves(
        &self,
        destination: &Destination,
    ) -> Result<Vec<(String, String)>, ConfigError> {
        let file = self.ssh_config.clone();
        let destination = destination.clone();
        let path = file.clone().unwrap_or_else(|| "ssh_config".into());
        off_runtime(&path, move || {
            fallback::resolve(file.as_deref(), &destination)
        })
        .await
        .map_err(|source| ConfigError::Unreadable {
            file: "ssh_config".into(),
            source,
        })?
    }

    /// Resolves `name`. Runs `ssh -G`, at most 10 s. Without an ssh program, and for a user without a name, it
    /// reads ssh_config itself and refuses lines that it does not understand.
    pub async fn resolve(&self, name: &str) -> Result<HostConfig, ConfigError> {
        let destination = Destination::parse(name)?;
        let settings = self.settings_of(name).without_overridden(&self.arguments);
        let options = SshOptions(self.ask_ssh(&destination, &self.arguments).await?);
        options.refuse(name, &["RemoteCommand", "RevokedHostKeys"])?;
        let jump = match options.jumps() {
            Some(jumps) => Some(Box::new(self.resolve_jumps(name, jumps, 1).await?)),
            None => None,
        };
        Ok(HostConfig {
            jump,
            name: name.to_owned(),
            ..self.expand(options, destination, &settings).await?
        })
    }

    pub(super) fn settings_of(&self, name: &str) -> &HostSettings {
        static NONE: LazyLock<HostSettings> = LazyLock::new(HostSettings::default);
        self.settings.get(name).unwrap_or(&NONE)
    }

    /// Resolves the last jump host, which is reached through those before it. The first is reached
    /// as its own configuration says, as in ssh.
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
            let (before, last) = jumps
                .rsplit_once(',')
                .map_or((None, jumps), |(before, last)| (Some(before), last));
            let destination = Destination::parse(last)?;
            let mut options = SshOptions(self.ask_ssh(&destination, &[]).await?);
            // No command runs on a jump host, so its RemoteCommand does not matter.
            options.refuse(&destination.host, &["RevokedHostKeys"])?;
            if before.is_some() {
                // The route to it is given explicitly.
                options.0.retain(|(key, _)| key != "proxycommand");
            }
            let jump = match before.or(options.jumps()) {
                Some(jumps) => Some(Box::new(self.resolve_jumps(name, jumps, depth + 1).await?)),
                None => None,
            };
            let settings = self.settings_of(&destination.host);
            Ok(HostConfig {
                jump,
                ..self.expand(options, destination, settings).await?
            })
        })
    }

    /// Expands tokens and examines which files exist.
    async fn expand(
        &self,
        options: SshOptions,
        destination: Destination,
        settings: &HostSettings,
    ) -> Result<HostConfig, ConfigError> {
        let proxy_commands = self.proxy_commands;
        let settings = settings.clone();
        let name = destination.host.clone();
        // Unexpanded: it only identifies the read for `off_runtime`.
        let first = options.get("identityfile").unwrap_or_default().to_owned();
        off_runtime(Path::new(&first), move || {
            options.to_config(proxy_commands, &destination, &settings)
        })
        .await
        .map_err(|source| ConfigError::Unreadable {
            file: format!("the files of {name}").into(),
            source,
        })?
    }

    pub(super) async fn ask_ssh(
        &self,
        destination: &Destination,
        arguments: &[String],
    ) -> Result<Vec<(String, String)>, ConfigError> {
        let mut ssh = Command::new("ssh");
        if let Some(file) = &self.ssh_config {
            ssh.arg("-F").arg(file);
        }
        // If an option is given twice, the first applies.
        ssh.args(arguments);
        if let Some(user) = &destination.user {
            ssh.args(["-l", user]);
        }
        if let Some(port) = destination.port {
            ssh.args(["-p", &port.to_string()]);
        }
        ssh.args(["-G", &destination.host]).stdin(Stdio::null()).kill_on_drop(true);
        let output = timeout(RESOLVE_TIMEOUT, ssh.output())
            .await
            .map_err(|_| ConfigError::TimedOut(RESOLVE_TIMEOUT))?
            .map_err(ConfigError::NoSsh);
        let is_missing = matches!(
            &output,
            Err(ConfigError::NoSsh(error)) if error.kind() == io::ErrorKind::NotFound
        );
        let is_nameless = output.as_ref().is_ok_and(|output| {
            !output.status.success() && output.stderr.trim_ascii().starts_with(NAMELESS)
        });
        // Arguments are options of ssh, which `fallback` does not parse.
        if (is_missing || is_nameless) && arguments.is_empty() {
            return self.read_ourselves(destination).await;
        }
        if is_nameless {
            return Err(ConfigError::Nameless(nix::unistd::getuid().as_raw()));
        }
        let output = output?;
        if !output.status.success() {
            // ssh's lines end with CR LF.
            let stderr = String::from_utf8_lossy(&output.stderr);
            let message = stderr
                .lines()
                .map(str::trim)
                .filter(|line| !line.is_empty())
                .collect::<Vec<_>>()
                .join("; ");
            // ssh uses these words for its own arguments.
            if message.starts_with("command-line") || message.starts_with("Bad port") {
                return Err(ConfigError::Arguments(message));
            }
            return Err(ConfigError::Rejected {
                name: destination.host.clone(),
                message,
            });
        }
        Ok(String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
            .collect())
    }
}
