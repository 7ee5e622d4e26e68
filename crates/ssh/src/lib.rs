//! SSH as this project needs it, and the only home of russh.
//!
//! | folder | contents |
//! |---|---|
//! | `config` | the settings of a host: ssh_config, as ssh understands it |
//! | `trust` | host keys: known_hosts and certificates |
//! | `auth` | login: keys, agents, passwords, and prompts for them |
//! | `connection` | connections, channels and their events |
//! | `tunnel` | streams to ports and sockets that a host reaches, and the listener on the host |
//!
//! [`connect`] makes one connection; `hosts` shares connections and retries. [`LoopbackServer`] is
//! a server for the demo and for tests. This room does not know `job`.

mod auth;
mod config;
mod connection;
mod error;
mod file_state;
mod files;
mod loopback;
mod trust;
mod tunnel;

pub use auth::{Answer, Askpass, BecomePassword, LoginSecrets, Prompter, Question};
pub use config::{
    Aliases, ConfigError, Destination, HostConfig, HostSettings, Location, Methods, Resolver,
    SecretError, SecretSource, Setting, SettingSource, SshCache,
};
pub use connection::{
    Channel, ChannelEvent, ChannelReader, ChannelWriter, Connection, OpenedStream, SERVER_CLOSES,
    connect, connect_over, look_at_key,
};
pub use error::{ChannelError, ConnectError, DialError};
pub use files::off_runtime;
pub use loopback::LoopbackServer;
pub use trust::{
    CertificateFault, CertificateRules, HostKeyError, HostName, KnownHosts, KnownHostsError,
    Negotiated, PresentedKey, TrustError, Verdict,
};
pub use tunnel::{BadEndpoint, Endpoint, Tunnel};
