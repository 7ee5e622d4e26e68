//! The resolved settings of a host.

use std::path::PathBuf;
use std::time::Duration;

use super::SecretSource;

/// Minimum length of RSA keys in bits, whatever ssh_config says.
pub(super) const SHORTEST_RSA: u32 = 2048;
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const KEEPALIVE: Duration = Duration::from_secs(15);

/// All settings to reach a host.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostConfig {
    /// The name that the user gave.
    pub name: String,
    /// Name or address to connect to.
    pub address: String,
    /// TCP port.
    pub port: u16,
    /// The account.
    pub user: String,
    /// Private keys to try, in order. Missing files are skipped.
    pub identity_files: Vec<PathBuf>,
    /// User certificates in addition to those beside the keys.
    pub certificate_files: Vec<PathBuf>,
    /// Source of the keys' passphrase. Without it a person is asked.
    pub passphrase: Option<SecretSource>,
    /// Source of the password. Without it a person is asked.
    pub password: Option<SecretSource>,
    /// Source of the password for sudo, doas or su. Without it a person is asked.
    pub become_password: Option<SecretSource>,
    /// Allowed login methods.
    pub methods: Methods,
    /// Whether the agent's keys are offered only if they are among the identity files
    /// (IdentitiesOnly).
    pub identities_only: bool,
    /// The agent's socket, if the agent is used.
    pub agent: Option<PathBuf>,
    /// known_hosts files. A missing one counts as empty.
    pub known_hosts: Vec<PathBuf>,
    /// The file to which new keys are written: the user's first known_hosts file.
    pub own_known_hosts: Option<PathBuf>,
    /// Minimum length of RSA keys in bits.
    pub shortest_rsa: u32,
    /// Signature algorithms accepted for host keys, if set (HostKeyAlgorithms).
    pub host_key_algorithms: Option<String>,
    /// Signature algorithms accepted from authorities, if set (CASignatureAlgorithms).
    pub ca_signature_algorithms: Option<String>,
    /// The name to look up in known_hosts instead of the address (HostKeyAlias).
    pub host_key_alias: Option<String>,
    /// Whether the key of a host that is not in known_hosts at all is accepted and added
    /// (`StrictHostKeyChecking accept-new`).
    pub accept_new: bool,
    /// Whether names are hashed when written to known_hosts (HashKnownHosts).
    pub hash_known_hosts: bool,
    /// Time limit for connecting, and for each later step.
    pub connect_timeout: Duration,
    /// Silence after which a keepalive is sent (ServerAliveInterval). After three without an answer
    /// the connection is lost.
    pub keepalive: Duration,
    /// The host through which this one is reached (ProxyJump). It may have a jump host itself.
    pub jump: Option<Box<Self>>,
    /// The `/bin/sh` command whose stdin and stdout connect to the host (ProxyCommand).
    pub proxy_command: Option<String>,
}

/// Login methods that may be tried (RFC 4252).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Methods {
    /// Keys and certificates.
    pub public_key: bool,
    /// Questions asked by the server (RFC 4256).
    pub keyboard_interactive: bool,
    /// A password.
    pub password: bool,
    /// Number of prompts for each password or passphrase (NumberOfPasswordPrompts); with 0 no
    /// person is asked.
    pub prompts: u32,
}

impl Default for Methods {
    fn default() -> Self {
        Self {
            public_key: true,
            keyboard_interactive: true,
            password: true,
            prompts: 3,
        }
    }
}

impl HostConfig {
    /// A host with ssh's defaults, but without keys, agent and known_hosts.
    pub fn new(name: &str, address: &str, port: u16, user: &str) -> Self {
        Self {
            name: name.to_owned(),
            address: address.to_owned(),
            port,
            user: user.to_owned(),
            identity_files: Vec::new(),
            certificate_files: Vec::new(),
            passphrase: None,
            password: None,
            become_password: None,
            methods: Methods::default(),
            identities_only: false,
            agent: None,
            known_hosts: Vec::new(),
            own_known_hosts: None,
            shortest_rsa: SHORTEST_RSA,
            host_key_algorithms: None,
            ca_signature_algorithms: None,
            host_key_alias: None,
            accept_new: false,
            hash_known_hosts: false,
            connect_timeout: CONNECT_TIMEOUT,
            keepalive: KEEPALIVE,
            jump: None,
            proxy_command: None,
        }
    }

    /// Account, address and jump hosts: `user@address:port via …`.
    pub fn route(&self) -> String {
        let own = format!("{}@{}:{}", self.user, self.address, self.port);
        match (&self.proxy_command, &self.jump) {
            (Some(command), _) => format!("{own} via {command:?}"),
            (None, Some(jump)) => format!("{own} via {}", jump.route()),
            (None, None) => own,
        }
    }
}
