use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::process::Stdio;
use std::sync::LazyLock;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use super::expand::Expander;
use super::fallback;
use super::files::off_runtime;
use super::hop::Hop;
use super::secret::SecretSource;

/// Everything that is needed to reach a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
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
    /// User certificates besides those that stand beside the keys.
    pub certificate_files: Vec<PathBuf>,
    /// Where the passphrase of the keys is had from, if not from a person.
    pub passphrase: Option<SecretSource>,
    /// Where the password is had from, if not from a person.
    pub password: Option<SecretSource>,
    /// The ways to log in.
    pub methods: Methods,
    /// Offer keys of the agent only when they are among the identity files.
    pub identities_only: bool,
    /// The agent's socket, if one is to be asked.
    pub agent: Option<PathBuf>,
    /// known_hosts files; one that doesn't exist counts as empty.
    pub known_hosts: Vec<PathBuf>,
    /// The one among them that new keys are written to: the user's first.
    pub own_known_hosts: Option<PathBuf>,
    /// RSA keys with fewer bits count for nothing.
    pub shortest_rsa: u32,
    /// The signature algorithms that ssh takes from hosts, if it tells (HostKeyAlgorithms).
    pub host_key_algorithms: Option<String>,
    /// The same for authorities (CASignatureAlgorithms).
    pub ca_signature_algorithms: Option<String>,
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
    /// The command whose stdin and stdout lead to the host (ProxyCommand), for `/bin/sh`.
    pub proxy_command: Option<String>,
}

/// The ways to log in that may be tried (RFC 4252).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Methods {
    /// Keys and certificates.
    pub public_key: bool,
    /// Questions of the server (RFC 4256).
    pub keyboard_interactive: bool,
    /// A password.
    pub password: bool,
    /// How often a person is asked again who mistyped; 0 means never to ask anybody.
    pub prompts: u32,
}

impl Default for Methods {
    fn default() -> Self {
        Self { public_key: true, keyboard_interactive: true, password: true, prompts: 3 }
    }
}

impl HostConfig {
    /// Who is reached where, and through whom: `user@address:port via …`.
    pub fn route(&self) -> String {
        let own = format!("{}@{}:{}", self.user, self.address, self.port);
        match (&self.proxy_command, &self.jump) {
            (Some(command), _) => format!("{own} via {command:?}"),
            (None, Some(jump)) => format!("{own} via {}", jump.route()),
            (None, None) => own,
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
    /// Where the passphrase of the keys is had from.
    pub passphrase: Option<SecretSource>,
    /// Where the password is had from.
    pub password: Option<SecretSource>,
}

/// Why a host's name could not be turned into a [`HostConfig`].
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The text can't be a host's name.
    #[error("{0:?} is not a host name")]
    BadName(String),
    /// The `ssh` program can't be run.
    #[error("the ssh program, which resolves host names, can't be run")]
    NoSsh(#[source] io::Error),
    /// There is no `ssh` program, and ssh_config says what only it understands.
    #[error("{}:{line}: without an ssh program to ask, {what} is not understood", file.display())]
    NotUnderstood {
        /// The file.
        file: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What stands there.
        what: String,
    },
    /// An ssh_config file can't be read.
    #[error("can't read {}", file.display())]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A value has a token or a variable that can't be expanded.
    #[error("{name}: {what} can't be expanded")]
    Token {
        /// The host.
        name: String,
        /// The token and where it stands.
        what: String,
    },
    /// The host is reached through a command, and the configuration does not allow that.
    #[error("{name} is reached by a ProxyCommand, which runs on this machine")]
    ProxyCommand {
        /// The host.
        name: String,
    },
    /// `ssh -G` failed: ssh_config has a mistake.
    #[error("ssh can't resolve {name}: {message}")]
    Rejected {
        /// The host.
        name: String,
        /// What ssh said.
        message: String,
    },
    /// What was given for `ssh` on the command line is wrong.
    #[error("ssh does not take these options: {0}")]
    Arguments(String),
    /// The hosts to jump through have no end.
    #[error("{0} is reached through more than {MOST_JUMPS} other hosts, or through itself")]
    TooManyJumps(String),
    /// ssh did not answer.
    #[error("ssh took longer than {0:?} to resolve the host")]
    TimedOut(Duration),
    /// The configuration asks for something that can't be done, and ignoring it would be wrong.
    #[error("{name} is configured with {option}, which sshjobs does not support")]
    Unsupported {
        /// The host.
        name: String,
        /// The option of ssh_config.
        option: &'static str,
    },
}

/// Longest ProxyJump chain.
const MOST_JUMPS: usize = 8;
/// RSA keys with fewer bits prove nothing, whatever ssh_config says.
pub(super) const SHORTEST_RSA: u32 = 2048;
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(10);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Turns names into [`HostConfig`]s by asking `ssh -G`, so that they mean what they mean to ssh.
#[derive(Clone, Debug, Default)]
pub struct Resolver {
    /// The ssh_config file instead of the user's and the system's.
    pub ssh_config: Option<PathBuf>,
    /// What goes over ssh_config, by host; of jump hosts, too.
    pub overrides: BTreeMap<String, HostOverrides>,
    /// Whether commands may be run to reach hosts (ProxyCommand).
    pub proxy_commands: bool,
    /// More arguments for `ssh -G`, such as `-o` and an option: they hold for the host itself, not for those on the way.
    pub arguments: Vec<String>,
}

impl Resolver {
    /// Resolves `name`. Runs `ssh -G`, within 10 s; where there is no ssh program, reads ssh_config itself and refuses what it
    /// does not understand.
    pub async fn resolve(&self, name: &str) -> Result<HostConfig, ConfigError> {
        let hop = Hop::parse(name)?;
        let overrides = self.overrides_of(name);
        let options = Options(self.ask_ssh(&hop, &self.arguments).await?);
        options.refuse(name, &["RemoteCommand", "RevokedHostKeys"])?;
        let jump = match options.jumps() {
            Some(jumps) => Some(Box::new(self.resolve_jumps(name, jumps, 1).await?)),
            None => None,
        };
        Ok(HostConfig { jump, name: name.to_owned(), ..self.expand(options, hop, overrides).await? })
    }

    pub(super) fn overrides_of(&self, name: &str) -> &HostOverrides {
        static NONE: LazyLock<HostOverrides> = LazyLock::new(HostOverrides::default);
        self.overrides.get(name).unwrap_or(&NONE)
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
            let mut options = Options(self.ask_ssh(&hop, &[]).await?);
            options.refuse(&hop.host, &["RevokedHostKeys"])?;
            if before.is_some() {
                // The way to it is spelled out.
                options.0.retain(|(key, _)| key != "proxycommand");
            }
            let jump = match before.or(options.jumps()) {
                Some(jumps) => Some(Box::new(self.resolve_jumps(name, jumps, depth + 1).await?)),
                None => None,
            };
            let overrides = self.overrides_of(&hop.host);
            Ok(HostConfig { jump, ..self.expand(options, hop, overrides).await? })
        })
    }

    /// It looks which files there are.
    async fn expand(
        &self,
        options: Options,
        hop: Hop,
        overrides: &HostOverrides,
    ) -> Result<HostConfig, ConfigError> {
        let (proxy_commands, overrides, name) = (self.proxy_commands, overrides.clone(), hop.host.clone());
        let first = options.get("identityfile").unwrap_or_default().to_owned();
        let reading = move || options.to_config(proxy_commands, &hop, &overrides);
        off_runtime(Path::new(&first), reading).await.map_err(|source| ConfigError::Unreadable {
            file: format!("the files of {name}").into(),
            source,
        })?
    }

    pub(super) async fn ask_ssh(
        &self,
        hop: &Hop,
        arguments: &[String],
    ) -> Result<Vec<(String, String)>, ConfigError> {
        let mut ssh = Command::new("ssh");
        if let Some(file) = &self.ssh_config {
            ssh.arg("-F").arg(file);
        }
        // Of options that are given twice the first counts.
        ssh.args(arguments);
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
            .map_err(ConfigError::NoSsh);
        let output = match output {
            Err(ConfigError::NoSsh(error))
                if error.kind() == io::ErrorKind::NotFound && arguments.is_empty() =>
            {
                let (file, hop) = (self.ssh_config.clone(), hop.clone());
                let unreadable = |source| ConfigError::Unreadable { file: "ssh_config".into(), source };
                let path = file.clone().unwrap_or_else(|| "ssh_config".into());
                return off_runtime(&path, move || fallback::resolve(file.as_deref(), &hop))
                    .await
                    .map_err(unreadable)?;
            }
            other => other?,
        };
        if !output.status.success() {
            // Its lines end with CR LF.
            let stderr = String::from_utf8_lossy(&output.stderr);
            let message =
                stderr.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join("; ");
            // That is how ssh names its own arguments.
            if message.starts_with("command-line") || message.starts_with("Bad port") {
                return Err(ConfigError::Arguments(message));
            }
            return Err(ConfigError::Rejected { name: hop.host.clone(), message });
        }
        Ok(String::from_utf8_lossy(&output.stdout)
            .lines()
            .filter_map(|line| line.split_once(' '))
            .map(|(key, value)| (key.to_owned(), value.trim().to_owned()))
            .collect())
    }
}

/// The lines of `ssh -G`.
pub(super) struct Options(pub(super) Vec<(String, String)>);

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

    pub(super) fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    fn to_config(
        &self,
        proxy_commands: bool,
        hop: &Hop,
        overrides: &HostOverrides,
    ) -> Result<HostConfig, ConfigError> {
        let name = &hop.host;
        let own = |key| self.get(key).map(str::to_owned);
        let address = overrides.address.clone().or(own("hostname")).unwrap_or_else(|| name.clone());
        let port = overrides.port.or(self.get("port").and_then(|port| port.parse().ok())).unwrap_or(22);
        let user = overrides.user.clone().or(own("user")).unwrap_or_default();
        check_name(&address)?;
        check_name(&user)?;
        let alias = own("hostkeyalias").filter(|alias| alias != "none");
        let mut expander =
            Expander { name, address: &address, port, user: &user, alias: None, jumps: self.jumps() };
        let alias = alias.map(|alias| expander.tokens(&alias)).transpose()?;
        expander.alias = alias.as_deref();
        let paths = |key| -> Result<Vec<PathBuf>, ConfigError> {
            self.all(key).filter(|file| *file != "none").map(|file| expander.path(file)).collect()
        };
        let listed = |key| self.get(key).map_or(Ok(Vec::new()), |files| expander.paths(files));
        let users = match &overrides.known_hosts {
            Some(path) => vec![expander.path(&path.to_string_lossy())?],
            None => listed("userknownhostsfile")?,
        };
        let global =
            if overrides.known_hosts.is_some() { Vec::new() } else { listed("globalknownhostsfile")? };
        let proxy_command = own("proxycommand").filter(|command| command != "none");
        if proxy_command.is_some() && !proxy_commands {
            return Err(ConfigError::ProxyCommand { name: name.clone() });
        }
        let file = |path: &PathBuf| expander.path(&path.to_string_lossy());
        Ok(HostConfig {
            name: name.clone(),
            identity_files: match &overrides.identity_file {
                Some(path) => vec![file(path)?],
                None => paths("identityfile")?,
            },
            certificate_files: paths("certificatefile")?,
            passphrase: overrides.passphrase.clone(),
            password: overrides.password.clone(),
            methods: self.methods(),
            identities_only: overrides.identity_file.is_some() || self.is("identitiesonly"),
            agent: agent_socket(self.get("identityagent"), &expander)?,
            own_known_hosts: users.first().cloned(),
            known_hosts: [users, global].concat(),
            shortest_rsa: self
                .get("requiredrsasize")
                .and_then(|bits| bits.parse().ok())
                .map_or(SHORTEST_RSA, |bits: u32| bits.max(SHORTEST_RSA)),
            host_key_algorithms: own("hostkeyalgorithms"),
            ca_signature_algorithms: own("casignaturealgorithms"),
            accept_new: self.get("stricthostkeychecking") == Some("accept-new"),
            hash_known_hosts: self.is("hashknownhosts"),
            connect_timeout: seconds(self.get("connecttimeout")).unwrap_or(CONNECT_TIMEOUT),
            keepalive: seconds(self.get("serveraliveinterval")).unwrap_or(KEEPALIVE),
            jump: None,
            proxy_command: proxy_command.map(|command| expander.tokens(&command)).transpose()?,
            host_key_alias: alias.clone(),
            address: address.clone(),
            port,
            user: user.clone(),
        })
    }

    /// Whether an option is on. ssh prints both words.
    fn is(&self, key: &str) -> bool {
        matches!(self.get(key), Some("yes" | "true"))
    }

    fn methods(&self) -> Methods {
        let on = |key| self.get(key).is_none() || self.is(key);
        let prompts =
            self.get("numberofpasswordprompts").and_then(|prompts| prompts.parse().ok()).unwrap_or(3);
        Methods {
            public_key: self.get("pubkeyauthentication").is_none_or(|value| !matches!(value, "no" | "false")),
            keyboard_interactive: on("kbdinteractiveauthentication"),
            password: on("passwordauthentication"),
            prompts: if self.is("batchmode") { 0 } else { prompts },
        }
    }
}

/// A name must not be taken for an option, nor for anything else, by the program that resolves it.
pub(super) fn check_name(name: &str) -> Result<(), ConfigError> {
    let strange = |c: char| c.is_control() || c.is_whitespace() || "'\"\\`$;&|<>(){}*?!,#/@".contains(c);
    if name.is_empty() || name.starts_with('-') || name.len() > 255 || name.contains(strange) {
        return Err(ConfigError::BadName(name.to_owned()));
    }
    Ok(())
}

fn seconds(value: Option<&str>) -> Option<Duration> {
    value?.parse().ok().filter(|&seconds| seconds > 0).map(Duration::from_secs)
}

fn agent_socket(option: Option<&str>, expander: &Expander<'_>) -> Result<Option<PathBuf>, ConfigError> {
    let variable = |name: &str| std::env::var_os(name).map(PathBuf::from);
    let socket = match option {
        Some("none") => None,
        None | Some("SSH_AUTH_SOCK") => variable("SSH_AUTH_SOCK"),
        Some(option) => match option.strip_prefix('$') {
            Some(name) if !name.starts_with('{') => variable(name),
            _ => Some(expander.path(option)?),
        },
    };
    Ok(socket.filter(|path| !path.as_os_str().is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn resolve(lines: &str, overrides: &HostOverrides) -> HostConfig {
        let pairs = lines.lines().filter_map(|line| line.split_once(' '));
        let hop = Hop { host: "web1".to_owned(), user: None, port: None };
        Options(pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect())
            .to_config(false, &hop, overrides)
            .unwrap()
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
    fn names_that_could_mean_something_to_a_program_are_refused() {
        for name in ["", "-oProxyCommand=x", "a b", "a\nb", "$(x)", "a;b", "`x`"] {
            assert!(check_name(name).is_err(), "{name:?}");
        }
        for name in ["web1", "10.0.0.1", "user.example.org", "::1", "web_1"] {
            assert!(check_name(name).is_ok(), "{name:?}");
        }
    }
}
