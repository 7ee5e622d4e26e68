use std::borrow::Cow;
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use russh::client::{self, Handle, Msg};
use russh::keys::PublicKeyOrCertificate;
use russh::{ChannelStream, Preferred, cipher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, sleep, timeout};

use super::auth::Login;
use super::breaker::{Breaker, Paused};
use super::channel::{self, Channel};
use super::host_key::{HandshakeError, HostKeyCheck, KeyLook, check_agreed, copy, host_keys_to_offer};
use super::proxy::ProxyCommand;
use super::watched::{Pulse, Watched};
use super::{
    ChannelError, ConnectError, HostConfig, HostKeyError, HostName, KnownHosts, PresentedKey, Secrets,
};

/// An authenticated SSH connection. Many channels share it.
pub struct Connection {
    handle: Arc<Handle<HostKeyCheck>>,
    negotiated: Arc<OnceLock<Negotiated>>,
    host: HostConfig,
    pulse: Pulse,
    /// The connection that this one goes through; it lives as long.
    _via: Option<Arc<Self>>,
}

/// What both sides agreed on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// The key exchange method.
    pub kex: String,
    /// The cipher.
    pub cipher: String,
    /// Whether nobody could have dropped messages of the handshake (OpenSSH's strict kex).
    pub strict_kex: bool,
    /// How the server names itself (RFC 4253 §4.2).
    pub server: String,
    /// Type and SHA-256 fingerprint of the host key.
    pub host_key: String,
}

const HANDSHAKE: &str = "the handshake";
/// How often a server that hangs up at once is tried, and the pause after the first time; each further one is twice as long.
const MOST_TRIES: u32 = 7;
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// Unanswered keepalives after which a connection is lost.
const KEEPALIVES_LOST: u32 = 3;
/// A login may take this many times ConnectTimeout, without the time that a person takes.
const LOGIN_FACTOR: u32 = 3;
/// How long a connection that has been silent may take to answer before it is used again.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

/// With AES in hardware this order is the fastest by far.
const CIPHERS: &[cipher::Name] = &[
    cipher::AES_256_GCM,
    cipher::AES_128_GCM,
    cipher::CHACHA20_POLY1305,
    cipher::AES_256_CTR,
    cipher::AES_192_CTR,
    cipher::AES_128_CTR,
];

/// The same for a processor without.
const CIPHERS_WITHOUT_AES: &[cipher::Name] = &[
    cipher::CHACHA20_POLY1305,
    cipher::AES_256_GCM,
    cipher::AES_128_GCM,
    cipher::AES_256_CTR,
    cipher::AES_192_CTR,
    cipher::AES_128_CTR,
];

fn ciphers() -> &'static [cipher::Name] {
    #[cfg(target_arch = "x86_64")]
    let has_aes = std::arch::is_x86_feature_detected!("aes");
    #[cfg(target_arch = "aarch64")]
    let has_aes = std::arch::is_aarch64_feature_detected!("aes");
    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    let has_aes = false;
    if has_aes { CIPHERS } else { CIPHERS_WITHOUT_AES }
}

/// Makes connections. Hosts that lie behind the same jump host share one connection to it.
#[derive(Default)]
pub struct Connector {
    secrets: Secrets,
    breaker: Breaker,
    jumps: Mutex<HashMap<HostConfig, Arc<JumpHost>>>,
}

/// A connection to a jump host while somebody uses it. Locked while connecting, so that one caller does it for all.
type JumpHost = tokio::sync::Mutex<Known>;

/// A connection to a jump host, or why there is none, which others may be told, too.
type JumpHostResult = Result<Arc<Connection>, Arc<ConnectError>>;

#[derive(Default)]
struct Known {
    connection: Weak<Connection>,
    /// When it could not be made last, and why: who waited for that one is told the same.
    failure: Option<(Instant, Arc<ConnectError>)>,
}

impl Connector {
    /// A connector whose logins may ask.
    pub fn asking(secrets: Secrets) -> Self {
        Self { secrets, ..Self::default() }
    }

    /// Reaches the host, through others if it is configured so, checks the key of each, and logs in.
    ///
    /// Each step has the host's own time limit; a login is never tried twice. Dropping the future closes everything.
    pub async fn connect(&self, host: &HostConfig) -> Result<Connection, ConnectError> {
        let route = host.route();
        self.breaker.check(&route).map_err(|Paused { times, wait }| ConnectError::Paused {
            host: host.name.clone(),
            user: host.user.clone(),
            times,
            wait,
        })?;
        let connected = self.connect_patiently(host).await;
        match &connected {
            Ok(_) => self.breaker.note(&route, true),
            Err(ConnectError::Auth { .. }) => self.breaker.note(&route, false),
            Err(_) => {}
        }
        connected
    }

    /// A server that is busy with others' logins hangs up on newcomers at random (MaxStartups). Nothing was shown or tried then,
    /// so it is tried again, after a pause that grows and differs from everybody else's.
    async fn connect_patiently(&self, host: &HostConfig) -> Result<Connection, ConnectError> {
        let (mut tries, began) = (1, Instant::now());
        loop {
            let (stream, via) = self.reach(host).await?;
            match Connection::over(stream, host, via, &self.secrets).await {
                Err(ConnectError::HungUp { .. })
                    if tries < MOST_TRIES
                        && began.elapsed() < host.connect_timeout * LOGIN_FACTOR
                        && host.proxy_command.is_none() =>
                {
                    sleep(FIRST_PAUSE.mul_f64(f64::from(1 << (tries - 1)) * rand::random_range(0.5..1.5)))
                        .await;
                    tries += 1;
                }
                Err(ConnectError::HungUp { host, .. }) => return Err(ConnectError::HungUp { host, tries }),
                connected => return connected,
            }
        }
    }

    /// Asks a host for its key, without logging in. Jump hosts on the way must be known, and are logged in to.
    pub async fn look_at_key(&self, host: &HostConfig) -> Result<PresentedKey, ConnectError> {
        // The way there must stay open meanwhile.
        let (stream, _via) = self.reach(host).await?;
        let key = look_at_key(stream, host).await?;
        Ok(PresentedKey::new(host, key).await.map_err(HostKeyError::from)?.not_spoken_against()?)
    }

    /// A stream to the host, and the jump host that it goes through.
    async fn reach(
        &self,
        host: &HostConfig,
    ) -> Result<(Box<dyn Stream>, Option<Arc<Connection>>), ConnectError> {
        if let Some(command) = &host.proxy_command {
            let started = ProxyCommand::start(command).map_err(|source| unreachable(host, source))?;
            return Ok((Box::new(started), None));
        }
        let Some(jump) = &host.jump else { return Ok((Box::new(tcp(host).await?), None)) };
        let on_the_way = |source| ConnectError::JumpHost { host: jump.name.clone(), source };
        let via = self.jump_host(jump).await.map_err(on_the_way)?;
        let stream = via.tunnel(host).await?;
        Ok((Box::new(stream), Some(via)))
    }

    /// A connection to a jump host: the one there is, or a new one.
    fn jump_host<'a>(
        &'a self,
        host: &'a HostConfig,
    ) -> Pin<Box<dyn Future<Output = JumpHostResult> + Send + 'a>> {
        Box::pin(async move {
            let entry = {
                let mut jumps = self.jumps.lock().unwrap_or_else(PoisonError::into_inner);
                Arc::clone(jumps.entry(host.clone()).or_default())
            };
            let came = Instant::now();
            let mut known = entry.lock().await;
            if let Some((_, error)) = known.failure.as_ref().filter(|(when, _)| *when >= came) {
                return Err(Arc::clone(error));
            }
            if let Some(live) = known.connection.upgrade().filter(|connection| !connection.is_closed()) {
                return Ok(live);
            }
            match self.connect(host).await {
                Ok(connection) => {
                    tracing::info!(host = host.name, "connected to a jump host");
                    let connection = Arc::new(connection);
                    *known = Known { connection: Arc::downgrade(&connection), failure: None };
                    Ok(connection)
                }
                Err(error) => {
                    let error = Arc::new(error);
                    known.failure = Some((Instant::now(), Arc::clone(&error)));
                    drop(known);
                    // Whoever waits has the entry already; for others it is as if it had never been tried.
                    self.jumps.lock().unwrap_or_else(PoisonError::into_inner).remove(host);
                    Err(error)
                }
            }
        })
    }
}

impl Connection {
    /// Shakes hands over `stream`.
    async fn over(
        stream: Box<dyn Stream>,
        host: &HostConfig,
        via: Option<Arc<Self>>,
        secrets: &Secrets,
    ) -> Result<Self, ConnectError> {
        let name = HostName::of(host);
        let known = KnownHosts::load(&host.known_hosts, &name).await.map_err(HostKeyError::from)?;
        let config = client_config(host, &known, &name);
        let (negotiated, agreed) = <(Arc<OnceLock<_>>, Arc<OnceLock<_>>)>::default();
        let check = HostKeyCheck {
            host: host.clone(),
            known,
            negotiated: Arc::clone(&negotiated),
            agreed: Arc::clone(&agreed),
            fingerprint: None,
        };
        let pulse = Pulse::new();
        // The first keepalive follows a silence as long as that between two.
        let stream = Watched::new(stream, pulse.clone(), host.keepalive * (KEEPALIVES_LOST + 1));
        let handshake = client::connect_stream(Arc::new(config), stream, check);
        let mut handle = match timeout(host.connect_timeout, handshake).await {
            Ok(shaken) => shaken.map_err(|error| handshake_error(host, HANDSHAKE, error))?,
            Err(_) => return Err(timed_out(host, HANDSHAKE)),
        };
        if let (Some(agreed), Some(proof)) = (agreed.get(), handle.agent_session_binding()) {
            check_agreed(agreed, proof)?;
        } else {
            // A key exchange without a proof of the host is none.
            return Err(ConnectError::Protocol { host: host.name.clone(), source: russh::Error::Kex });
        }
        // Without the time of a person, who may be asked.
        let patience = host.connect_timeout * LOGIN_FACTOR;
        let login = Login::new(&mut handle, host, secrets, patience).run().await;
        match login.map_err(|error| handshake_error(host, "the login", error))? {
            Ok(()) => {
                pulse.expect_answers();
                Ok(Self { handle: Arc::new(handle), negotiated, host: host.clone(), pulse, _via: via })
            }
            Err(tried) => Err(ConnectError::Auth { host: host.name.clone(), user: host.user.clone(), tried }),
        }
    }

    /// A stream through this host to another (RFC 4254 §7.2, direct-tcpip). This host looks up the other's address.
    async fn tunnel(&self, host: &HostConfig) -> Result<ChannelStream<Msg>, ConnectError> {
        let opening = self.handle.channel_open_direct_tcpip(&*host.address, host.port.into(), "127.0.0.1", 0);
        match timeout(host.connect_timeout, opening).await {
            Ok(Ok(channel)) => Ok(channel.into_stream()),
            Ok(Err(russh::Error::ChannelOpenFailure(reason))) => {
                let why = format!("the jump host {} does not lead there ({reason:?})", self.host.name);
                Err(unreachable(host, io::Error::other(why)))
            }
            Ok(Err(source)) => Err(ConnectError::Protocol { host: self.host.name.clone(), source }),
            Err(_) => Err(timed_out(host, "connecting")),
        }
    }

    /// Opens a session channel (RFC 4254 §6.1).
    pub async fn open(&self) -> Result<Channel, ChannelError> {
        channel::open(Arc::clone(&self.handle), self.host.connect_timeout).await
    }

    /// Whether the connection is gone.
    pub fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// For how long nothing has come over it.
    pub fn silent_for(&self) -> Duration {
        self.pulse.heard_at().elapsed()
    }

    /// Asks the server for a sign of life (`keepalive@openssh.com`) and tells whether one came within two seconds.
    pub async fn ping(&self) -> bool {
        timeout(PING_TIMEOUT, self.handle.send_ping()).await.is_ok_and(|sent| sent.is_ok())
            && !self.is_closed()
    }

    /// Takes nothing in any more, so that the far end has to wait, or takes it in again. What is sent still goes out. No answer
    /// comes over a connection that is held.
    pub fn hold(&self, is_held: bool) {
        self.pulse.hold(is_held);
    }

    /// Tells the server that we are there. It need not answer.
    pub async fn show_life(&self) {
        // Whoever reads the channel is told when the connection is lost.
        drop(timeout(PING_TIMEOUT, self.handle.send_keepalive(false)).await);
    }

    /// Whether it is held.
    pub fn is_held(&self) -> bool {
        self.pulse.is_held()
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

/// What an SSH connection can run over.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

async fn look_at_key(
    stream: Box<dyn Stream>,
    host: &HostConfig,
) -> Result<PublicKeyOrCertificate, ConnectError> {
    let name = HostName::of(host);
    let known = KnownHosts::load(&host.known_hosts, &name).await.map_err(HostKeyError::from)?;
    let config = Arc::new(client_config(host, &known, &name));
    let seen = Arc::new(OnceLock::new());
    let handshake = client::connect_stream(config, stream, KeyLook(Arc::clone(&seen)));
    // The handshake ends as soon as the key was seen, for it is not accepted.
    match (timeout(host.connect_timeout, handshake).await, seen.get()) {
        (_, Some(key)) => Ok(copy(key)),
        (Ok(Err(source)), None) => Err(ConnectError::Protocol { host: host.name.clone(), source }),
        (Ok(Ok(_)) | Err(_), None) => Err(timed_out(host, "the handshake")),
    }
}

fn client_config(host: &HostConfig, known: &KnownHosts, name: &HostName) -> client::Config {
    client::Config {
        preferred: Preferred {
            cipher: Cow::Borrowed(ciphers()),
            ..host_keys_to_offer(known, name, host.host_key_algorithms.as_deref())
        },
        keepalive_interval: Some(host.keepalive),
        // Whether a connection is lost is found out by the stream.
        keepalive_max: 0,
        nodelay: true,
        ..client::Config::default()
    }
}

async fn tcp(host: &HostConfig) -> Result<TcpStream, ConnectError> {
    let unreachable = |source| unreachable(host, source);
    let Ok(found) = timeout(host.connect_timeout, lookup_host((host.address.as_str(), host.port))).await
    else {
        return Err(timed_out(host, "looking up the address"));
    };
    let mut last = unreachable(io::Error::new(io::ErrorKind::NotFound, "the name has no address"));
    let mut connected = None;
    // As with ssh, each address has the whole time.
    for address in found.map_err(unreachable)? {
        match timeout(host.connect_timeout, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                connected = Some(stream);
                break;
            }
            Ok(Err(error)) => last = unreachable(error),
            Err(_) => last = timed_out(host, "connecting"),
        }
    }
    let Some(stream) = connected else { return Err(last) };
    stream.set_nodelay(true).map_err(unreachable)?;
    Ok(stream)
}

fn unreachable(host: &HostConfig, source: io::Error) -> ConnectError {
    ConnectError::Unreachable {
        host: host.name.clone(),
        address: format!("{} port {}", host.address, host.port),
        source,
    }
}

fn handshake_error(host: &HostConfig, step: &'static str, error: HandshakeError) -> ConnectError {
    match error {
        HandshakeError::HostKey(error) => error.into(),
        HandshakeError::Russh(russh::Error::Disconnect | russh::Error::HUP | russh::Error::IO(_))
            if step == HANDSHAKE =>
        {
            ConnectError::HungUp { host: host.name.clone(), tries: 1 }
        }
        HandshakeError::Russh(source) => ConnectError::Protocol { host: host.name.clone(), source },
        HandshakeError::Silent => timed_out(host, step),
    }
}

fn timed_out(host: &HostConfig, step: &'static str) -> ConnectError {
    ConnectError::TimedOut { host: host.name.clone(), step, limit: host.connect_timeout }
}
