//! Connects, checks the host key and logs in. Every step has a time limit.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use russh::keys::PublicKeyOrCertificate;
use russh::{AlgorithmKind, Preferred, client};
use tokio::time::timeout;

use super::Connection;
use super::ciphers::{ciphers, key_exchanges};
use super::errors::timed_out;
use super::stream::{ByteStream, OpenedStream, stream_to};
use super::watched::{Pulse, WatchedStream};
use crate::auth::Login;
use crate::trust::{HandshakeError, HostKeyCheck, KeyLook, check_agreed, copy, host_keys_to_offer};
use crate::tunnel::{Closes, TunnelListener};
use crate::{
    ConnectError, HostConfig, HostKeyError, HostName, KnownHosts, LoginSecrets, PresentedKey,
};

const HANDSHAKE: &str = "the handshake";
/// Number of unanswered keepalives after which a connection is lost.
const KEEPALIVES_LOST: u32 = 3;
/// Time limit of a login in multiples of ConnectTimeout, not counting the time that a person takes.
pub(super) const LOGIN_FACTOR: u32 = 3;

/// Bytes that the server may send on a channel before we grant more (RFC 4254 §5.2). Limits a
/// download to this amount per round trip.
const WINDOW_BYTES: u32 = 8 << 20;

/// Connects to a host, through the connection `via` if given, checks its key and logs in, once.
///
/// Each step has the host's own time limit. Dropping the future closes everything.
pub async fn connect(
    host: &HostConfig,
    via: Option<Arc<Connection>>,
    secrets: &LoginSecrets,
) -> Result<Connection, ConnectError> {
    over(stream_to(host, via.as_deref()).await?, host, via, secrets).await
}

/// Like [`connect`], over a stream from [`OpenedStream::to`].
pub async fn connect_over(
    stream: OpenedStream,
    host: &HostConfig,
    secrets: &LoginSecrets,
) -> Result<Connection, ConnectError> {
    over(Box::new(stream.0), host, None, secrets).await
}

/// Asks a host for its key without logging in. A key that conflicts with known_hosts is an error.
pub async fn look_at_key(
    host: &HostConfig,
    via: Option<Arc<Connection>>,
) -> Result<PresentedKey, ConnectError> {
    let key = key_of(stream_to(host, via.as_deref()).await?, host).await?;
    Ok(PresentedKey::new(host, key)
        .await
        .map_err(HostKeyError::from)?
        .reject_conflict()?)
}

/// Performs the handshake over `stream`.
async fn over(
    stream: Box<dyn ByteStream>,
    host: &HostConfig,
    via: Option<Arc<Connection>>,
    secrets: &LoginSecrets,
) -> Result<Connection, ConnectError> {
    let name = HostName::of(host);
    let known = KnownHosts::load(&host.known_hosts, &name).await.map_err(HostKeyError::from)?;
    let config = client_config(host, &known, &name);
    let negotiated = Arc::new(OnceLock::new());
    let agreed = Arc::new(OnceLock::new());
    let listener = TunnelListener::default();
    let closes = Closes::default();
    let check = HostKeyCheck {
        host: host.clone(),
        known,
        negotiated: Arc::clone(&negotiated),
        agreed: Arc::clone(&agreed),
        fingerprint: None,
        listener: listener.clone(),
        closes: closes.clone(),
    };
    let pulse = Pulse::new();
    // One interval passes before the first keepalive, so three without an answer take four.
    let stream = WatchedStream::new(
        stream,
        pulse.clone(),
        host.keepalive * (KEEPALIVES_LOST + 1),
    );
    let handshake = client::connect_stream(Arc::new(config), stream, check);
    let mut handle = match timeout(host.connect_timeout, handshake).await {
        Ok(connected) => connected.map_err(|error| handshake_error(host, HANDSHAKE, error))?,
        Err(_) => return Err(timed_out(host, HANDSHAKE)),
    };
    // Before the login, so that no password reaches a host with a weak proof.
    if let (Some(agreed), Some(proof)) = (agreed.get(), handle.agent_session_binding()) {
        check_agreed(agreed, proof)?;
    } else {
        // A key exchange without a proof of the host key proves nothing.
        return Err(ConnectError::Protocol {
            host: host.name.clone(),
            source: russh::Error::Kex,
        });
    }
    // Time that a person takes to answer is not counted.
    let patience = host.connect_timeout * LOGIN_FACTOR;
    // Boxed, because without optimization the callers of a future this large overflow the stack.
    let login = Box::pin(Login::new(&mut handle, host, secrets, patience).run()).await;
    match login.map_err(|error| handshake_error(host, "the login", error))? {
        Ok(()) => {
            // Only now: russh sends keepalives once the login is complete.
            pulse.expect_answers();
            Ok(Connection {
                handle: Arc::new(handle),
                negotiated,
                host: host.clone(),
                pulse,
                listener,
                closes,
                closed_first: Arc::default(),
                _via: via,
            })
        }
        Err(tried) => Err(ConnectError::Auth {
            host: host.name.clone(),
            user: host.user.clone(),
            tried,
        }),
    }
}

async fn key_of(
    stream: Box<dyn ByteStream>,
    host: &HostConfig,
) -> Result<PublicKeyOrCertificate, ConnectError> {
    let name = HostName::of(host);
    let known = KnownHosts::load(&host.known_hosts, &name).await.map_err(HostKeyError::from)?;
    // Requests the same algorithms as a login does, so that the host presents the same key.
    let config = Arc::new(client_config(host, &known, &name));
    let seen = Arc::new(OnceLock::new());
    let handshake = client::connect_stream(config, stream, KeyLook(Arc::clone(&seen)));
    // The handshake ends when the key has been seen, because the callback rejects it.
    match (timeout(host.connect_timeout, handshake).await, seen.get()) {
        (_, Some(key)) => Ok(copy(key)),
        (Ok(Err(error)), None) => Err(handshake_error(host, HANDSHAKE, error.into())),
        // A key exchange without a host key proves nothing.
        (Ok(Ok(_)), None) => Err(ConnectError::Protocol {
            host: host.name.clone(),
            source: russh::Error::Kex,
        }),
        (Err(_), None) => Err(timed_out(host, HANDSHAKE)),
    }
}

fn client_config(host: &HostConfig, known: &KnownHosts, name: &HostName) -> client::Config {
    client::Config {
        preferred: Preferred {
            cipher: Cow::Borrowed(ciphers()),
            kex: key_exchanges().into(),
            ..host_keys_to_offer(known, name, host.host_key_algorithms.as_deref())
        },
        keepalive_interval: Some(host.keepalive),
        // The stream below decides whether the connection is lost.
        keepalive_max: 0,
        nodelay: true,
        window_size: WINDOW_BYTES,
        ..client::Config::default()
    }
}

/// Maximum names of algorithms that are quoted: the server may send any number.
const MOST_QUOTED: usize = 20;
/// Maximum characters of an algorithm's name (RFC 4251, section 6).
const LONGEST_NAME: usize = 64;

/// The name of an option of sshd_config and ssh_config, which lists such algorithms.
fn kind_of(kind: AlgorithmKind) -> &'static str {
    match kind {
        AlgorithmKind::Kex => "KexAlgorithms",
        AlgorithmKind::Key => "HostKeyAlgorithms",
        AlgorithmKind::Cipher => "Ciphers",
        AlgorithmKind::Compression => "Compression",
        AlgorithmKind::Mac => "MACs",
    }
}

/// Names for an error. Those of a server may contain anything, so other characters than names have are left out.
fn listed(names: &[String]) -> String {
    let is_of_name = |c: &char| c.is_ascii_alphanumeric() || "@._-".contains(*c);
    let shown = names.iter().take(MOST_QUOTED);
    let shown = shown.map(|name| name.chars().filter(is_of_name).take(LONGEST_NAME).collect());
    shown.collect::<Vec<String>>().join(", ")
}

fn handshake_error(host: &HostConfig, step: &'static str, error: HandshakeError) -> ConnectError {
    match error {
        HandshakeError::HostKey(error) => error.into(),
        // sshd also closes connections like this above MaxStartups, so callers may try again. A login reports that only if
        // the server has refused nothing before.
        HandshakeError::Russh(
            russh::Error::Disconnect
            | russh::Error::HUP
            | russh::Error::IO(_)
            | russh::Error::SendError,
        ) => ConnectError::HungUp {
            host: host.name.clone(),
            tries: 1,
        },
        HandshakeError::Russh(russh::Error::NoCommonAlgo { kind, ours, theirs }) => {
            ConnectError::NoCommonAlgorithm {
                host: host.name.clone(),
                kind: kind_of(kind),
                ours: listed(&ours),
                theirs: listed(&theirs),
            }
        }
        HandshakeError::Russh(source) => ConnectError::Protocol {
            host: host.name.clone(),
            source,
        },
        HandshakeError::Silent => timed_out(host, step),
    }
}
