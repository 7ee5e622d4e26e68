//! Floor 1: SSH as this project needs it, and the only home of russh.
//!
//! A host's name becomes a [`HostConfig`] the way `ssh` resolves it; [`Connector::connect`] reaches it, with a host key
//! that known_hosts lists or not at all; a [`Channel`] runs one exec and its events are plain data ([`ChannelEvent`]);
//! a [`Pool`] shares connections. Every step has a time limit. [`LoopbackServer`] is a server for the demo and for
//! tests. This room never meets `job`.

mod aliases;
mod auth;
mod breaker;
mod certificate;
mod channel;
mod config;
mod connection;
mod error;
mod expand;
mod fallback;
mod files;
mod hop;
mod host_key;
mod key_file;
mod known_hosts;
mod loopback;
mod pool;
mod proxy;
mod secret;
mod settings;
mod signer;
mod trust;
mod watched;

pub use aliases::{Aliases, Location, concrete_aliases};
pub use certificate::{CertificateFault, CertificateRules};
pub use channel::{Channel, ChannelEvent, ChannelReader, ChannelWriter};
pub use config::{ConfigError, HostConfig, HostOverrides, Methods, Resolver};
pub use connection::{Connection, Connector, Negotiated};
pub use error::{ChannelError, ConnectError, HostKeyError};
pub use files::off_runtime;
pub use known_hosts::{HostName, KnownHosts, KnownHostsError, Verdict};
pub use loopback::LoopbackServer;
pub use pool::{Connect, Lease, Pool, PoolError, PoolLimits, Pooled, Usage};
pub use secret::{Answer, Askpass, Prompter, Question, SecretError, SecretSource, Secrets};
pub use settings::{Setting, Source};
pub use trust::{PresentedKey, TrustError};
