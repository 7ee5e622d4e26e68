use std::borrow::Cow;
use std::io;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use russh::client::{self, Handle};
use russh::{Preferred, cipher};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::auth::Login;
use super::channel::{self, Channel};
use super::host_key::{HandshakeError, HostKeyCheck, key_types_to_offer};
use super::{ChannelError, ConnectError, HostConfig, HostKeyError, HostName, KnownHosts};

/// An authenticated SSH connection. Many channels share it.
pub struct Connection {
    handle: Handle<HostKeyCheck>,
    negotiated: Arc<OnceLock<Negotiated>>,
    host: HostConfig,
}

/// What both sides agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// The key exchange method.
    pub kex: String,
    /// The cipher.
    pub cipher: String,
    /// Type and SHA-256 fingerprint of the host key.
    pub host_key: String,
}

/// So many keepalives without an answer make the connection lost.
const KEEPALIVES_LOST: usize = 3;

/// With hardware AES this is the fastest by far, and no slower than the others without.
const CIPHERS: &[cipher::Name] = &[
    cipher::AES_256_GCM,
    cipher::AES_128_GCM,
    cipher::CHACHA20_POLY1305,
    cipher::AES_256_CTR,
    cipher::AES_192_CTR,
    cipher::AES_128_CTR,
];

impl Connection {
    /// Reaches the host, checks its key, and logs in.
    ///
    /// Each step has the host's own time limit; a login is never tried twice. Dropping the future closes everything.
    pub async fn connect(host: &HostConfig) -> Result<Self, ConnectError> {
        let name = match &host.host_key_alias {
            Some(alias) => HostName::alias(alias),
            None => HostName::new(&host.address, host.port),
        };
        let known = KnownHosts::load(&host.known_hosts).map_err(HostKeyError::from)?;
        let config = client_config(host, &known, &name);
        let negotiated = Arc::new(OnceLock::new());
        let check =
            HostKeyCheck { host: name, known, negotiated: Arc::clone(&negotiated), fingerprint: None };

        let stream = tcp(host).await?;
        let handshake = client::connect_stream(Arc::new(config), stream, check);
        let mut handle = bounded(host, "the handshake", handshake).await?;
        let login = Login::new(&mut handle, host).run();
        match bounded(host, "the login", login).await? {
            Ok(()) => Ok(Self { handle, negotiated, host: host.clone() }),
            Err(tried) => Err(ConnectError::Auth { host: host.name.clone(), user: host.user.clone(), tried }),
        }
    }

    /// Opens a session channel (RFC 4254 §6.1).
    pub async fn open(&self) -> Result<Channel, ChannelError> {
        channel::open(&self.handle, self.host.connect_timeout).await
    }

    /// Whether the connection is gone.
    pub fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// The host it leads to.
    pub fn host(&self) -> &HostConfig {
        &self.host
    }

    /// What both sides agreed on.
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated.get().cloned().unwrap_or_default()
    }

    /// Says goodbye (RFC 4253 §11.1).
    pub async fn disconnect(&self) {
        let goodbye = self.handle.disconnect(russh::Disconnect::ByApplication, "", "");
        // When the server no longer listens, dropping the connection says the same.
        drop(timeout(Duration::from_secs(1), goodbye).await);
    }
}

fn client_config(host: &HostConfig, known: &KnownHosts, name: &HostName) -> client::Config {
    client::Config {
        preferred: Preferred {
            key: key_types_to_offer(&known.key_types(name)),
            cipher: Cow::Borrowed(CIPHERS),
            ..Preferred::DEFAULT
        },
        keepalive_interval: Some(host.keepalive),
        keepalive_max: KEEPALIVES_LOST,
        nodelay: true,
        ..client::Config::default()
    }
}

async fn tcp(host: &HostConfig) -> Result<TcpStream, ConnectError> {
    let unreachable = |source: io::Error| ConnectError::Unreachable {
        host: host.name.clone(),
        address: format!("{} port {}", host.address, host.port),
        source,
    };
    let connecting = async {
        let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in lookup_host((host.address.as_str(), host.port)).await? {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) => last = error,
            }
        }
        Err(last)
    };
    let stream = match timeout(host.connect_timeout, connecting).await {
        Ok(connected) => connected.map_err(unreachable)?,
        Err(_) => return Err(timed_out(host, "connecting")),
    };
    stream.set_nodelay(true).map_err(unreachable)?;
    Ok(stream)
}

async fn bounded<T>(
    host: &HostConfig,
    step: &'static str,
    call: impl Future<Output = Result<T, HandshakeError>>,
) -> Result<T, ConnectError> {
    match timeout(host.connect_timeout, call).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(HandshakeError::HostKey(error))) => Err(error.into()),
        Ok(Err(HandshakeError::Russh(source))) => {
            Err(ConnectError::Protocol { host: host.name.clone(), source })
        }
        Err(_) => Err(timed_out(host, step)),
    }
}

fn timed_out(host: &HostConfig, step: &'static str) -> ConnectError {
    ConnectError::TimedOut { host: host.name.clone(), step, limit: host.connect_timeout }
}
