use std::path::PathBuf;
use std::time::Duration;

use super::SecretSource;

/// Shortest RSA key that counts, in bits, whatever ssh_config says.
pub(super) const SHORTEST_RSA: u32 = 2048;
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
pub(super) const KEEPALIVE: Duration = Duration::from_secs(15);

/// Everything that is needed to reach a host.
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
    /// Private keys to try, in order. Those that don't exist are passed over.
    pub identity_files: Vec<PathBuf>,
    /// User certificates besides those that stand beside the keys.
    pub certificate_files: Vec<PathBuf>,
    /// Where the keys' passphrase comes from, if not from a person.
    pub passphrase: Option<SecretSource>,
    /// Where the password comes from, if not from a person.
    pub password: Option<SecretSource>,
    /// The ways to log in.
    pub methods: Methods,
    /// Whether the agent's keys are offered only when they are among the identity files (IdentitiesOnly).
    pub identities_only: bool,
    /// The agent's socket, if one is to be asked.
    pub agent: Option<PathBuf>,
    /// known_hosts files; one that doesn't exist counts as empty.
    pub known_hosts: Vec<PathBuf>,
    /// The one among them that new keys are written to: the user's first.
    pub own_known_hosts: Option<PathBuf>,
    /// Shortest RSA key that counts, in bits.
    pub shortest_rsa: u32,
    /// The signature algorithms that ssh takes from hosts, if it tells (HostKeyAlgorithms).
    pub host_key_algorithms: Option<String>,
    /// The same for authorities (CASignatureAlgorithms).
    pub ca_signature_algorithms: Option<String>,
    /// The name to look up in known_hosts instead of the address.
    pub host_key_alias: Option<String>,
    /// Whether the key of a host that known_hosts does not list at all is accepted and added (`StrictHostKeyChecking accept-new`).
    pub accept_new: bool,
    /// Whether names are hashed when they are written to known_hosts (HashKnownHosts).
    pub hash_known_hosts: bool,
    /// Time limit for connecting, and for each later step.
    pub connect_timeout: Duration,
    /// Silence after which a keepalive is sent (ServerAliveInterval). After three unanswered ones the connection is
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
    /// Prompts for each password or passphrase (NumberOfPasswordPrompts); with 0 nobody is asked.
    pub prompts: u32,
}

impl Default for Methods {
    fn default() -> Self {
        Self { public_key: true, keyboard_interactive: true, password: true, prompts: 3 }
    }
}

impl HostConfig {
    /// A host with ssh's defaults, but without keys, agent and known_hosts.
    pub(crate) fn new(name: &str, address: &str, port: u16, user: &str) -> Self {
        Self {
            name: name.to_owned(),
            address: address.to_owned(),
            port,
            user: user.to_owned(),
            identity_files: Vec::new(),
            certificate_files: Vec::new(),
            passphrase: None,
            password: None,
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
