//! Floor 1: SSH as this project needs it, and the only home of russh.
//!
//! | room | what is there |
//! |---|---|
//! | `config` | what a host's name stands for: ssh_config, as `ssh -G` tells it |
//! | `trust` | which hosts are the ones we know: known_hosts, host keys, certificates |
//! | `auth` | logging in: keys, agents, passwords, and whom to ask for them |
//! | `connection` | connections, channels and what happens on them |
//!
//! [`connect`] makes one connection; sharing and trying again is for `hosts`. [`LoopbackServer`] is a server for the demo and for
//! tests. This room never meets `job`.

mod auth;
mod config;
mod connection;
mod error;
mod files;
mod glob;
mod loopback;
mod trust;

pub use auth::{Answer, Askpass, Prompter, Question, Secrets};
pub use config::{
    Aliases, ConfigError, HostConfig, HostSettings, Location, Methods, Resolver, SecretError, SecretSource,
    Setting, Source, concrete_aliases,
};
pub use connection::{Channel, ChannelEvent, ChannelReader, ChannelWriter, Connection, connect, look_at_key};
pub use error::{ChannelError, ConnectError};
pub use files::off_runtime;
pub use glob::matches;
pub use loopback::LoopbackServer;
pub use trust::{
    CertificateFault, CertificateRules, HostKeyError, HostName, KnownHosts, KnownHostsError, Negotiated,
    PresentedKey, TrustError, Verdict,
};
