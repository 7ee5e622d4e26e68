//! The russh handler that accepts or refuses a host key, and records what was negotiated.

use std::sync::{Arc, OnceLock};

use russh::client::{ChannelOpenHandle, Msg, Session};
use russh::keys::{Algorithm, PublicKeyOrCertificate};
use russh::{Channel, ChannelId, Names, client};

use super::key::{copy, fingerprint, short_rsa};
use super::{HostKeyError, HostName, KnownHosts, PresentedKey, TrustError, Verdict};
use crate::HostConfig;
use crate::tunnel::{Closes, TunnelListener};
use sshjobs_output::printable;

/// Longest server identification that is kept (RFC 4253 §4.2).
const LONGEST_ID: usize = 255;

/// Negotiated algorithms of a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Negotiated {
    /// The key exchange method.
    pub kex: String,
    /// The cipher.
    pub cipher: String,
    /// Whether handshake messages are protected from removal (OpenSSH's strict kex).
    pub strict_kex: bool,
    /// The server's identification (RFC 4253 §4.2).
    pub server: String,
    /// Type and SHA-256 fingerprint of the host key.
    pub host_key: String,
}

/// russh callbacks that accept only keys that known_hosts allows.
pub(crate) struct HostKeyCheck {
    pub(crate) host: HostConfig,
    /// Entries of known_hosts for this host.
    pub(crate) known: KnownHosts,
    pub(crate) negotiated: Arc<OnceLock<Negotiated>>,
    /// The negotiated signature algorithm for the host key.
    pub(crate) agreed: Arc<OnceLock<Algorithm>>,
    pub(crate) fingerprint: Option<String>,
    /// What the host may open streams for.
    pub(crate) listener: TunnelListener,
    /// Notifies streams whose channel the host closes.
    pub(crate) closes: Closes,
}

/// Why a handshake failed, from inside russh.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HandshakeError {
    #[error(transparent)]
    HostKey(#[from] HostKeyError),
    #[error(transparent)]
    Russh(#[from] russh::Error),
    #[error("the server does not answer")]
    Silent,
}

impl HostKeyCheck {
    /// Accepts a key that known_hosts allows; under `accept-new` also the key of a host that is not
    /// listed at all, which is then written to known_hosts.
    async fn judge(&self, presented: &PublicKeyOrCertificate) -> Result<String, HostKeyError> {
        let name = HostName::of(&self.host);
        let key = presented.public_key();
        let fingerprint = fingerprint(&key);
        // Before the verdict: a short key is refused even if known_hosts lists it.
        if let Some(bits) = short_rsa(key.key_data(), self.host.shortest_rsa) {
            return Err(HostKeyError::TooShort {
                host: name.as_str().to_owned(),
                bits,
            });
        }
        let is_certificate = matches!(presented, PublicKeyOrCertificate::Certificate(_));
        let verdict = self.known.verdict_on(&self.host, presented);
        if verdict == Verdict::Unknown && self.host.accept_new {
            let presented = Arc::new(PresentedKey::new(&self.host, copy(presented)).await?);
            let file = presented.trust().await.map_err(|error| match error {
                TrustError::HostKey(error) => error,
                error @ (TrustError::NoFile(_) | TrustError::Unwritable { .. }) => {
                    HostKeyError::NotWritten(Box::new(error))
                }
            })?;
            tracing::warn!(host = self.host.name, fingerprint, file = %file.display(), "accepted a new host key");
        } else {
            verdict.judge(&name, &fingerprint)?;
        }
        Ok(fingerprint + if is_certificate { " (certified)" } else { "" })
    }
}

impl client::Handler for HostKeyCheck {
    type Error = HandshakeError;

    async fn check_server_key(
        &mut self,
        presented: &PublicKeyOrCertificate,
    ) -> Result<bool, HandshakeError> {
        self.fingerprint = Some(self.judge(presented).await?);
        Ok(true)
    }

    async fn channel_close(
        &mut self,
        channel: ChannelId,
        _session: &mut Session,
    ) -> Result<(), HandshakeError> {
        self.closes.note(channel);
        Ok(())
    }

    async fn kex_done(
        &mut self,
        _secret: Option<&[u8]>,
        names: &Names,
        session: &mut Session,
    ) -> Result<(), HandshakeError> {
        // Later calls are for re-keying and change nothing that is shown.
        self.agreed.get_or_init(|| names.key.clone());
        self.negotiated.get_or_init(|| Negotiated {
            kex: names.kex.as_ref().to_owned(),
            cipher: names.cipher.as_ref().to_owned(),
            strict_kex: names.strict_kex(),
            server: printable(
                &String::from_utf8_lossy(session.remote_sshid())
                    .chars()
                    .take(LONGEST_ID)
                    .collect::<String>(),
            ),
            host_key: self.fingerprint.clone().unwrap_or_default(),
        });
        Ok(())
    }

    // A server opens channels only for forwards that the client has requested (RFC 4254, sections
    // 6.3.2 and 7.2). russh's defaults accept all of them; dropping the handle unused refuses one.

    async fn server_channel_open_session(
        &mut self,
        _channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandshakeError> {
        drop(reply);
        Ok(())
    }

    async fn server_channel_open_agent_forward(
        &mut self,
        _channel: Channel<Msg>,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandshakeError> {
        drop(reply);
        Ok(())
    }

    async fn server_channel_open_x11(
        &mut self,
        _channel: Channel<Msg>,
        _originator_address: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandshakeError> {
        drop(reply);
        Ok(())
    }

    async fn server_channel_open_direct_tcpip(
        &mut self,
        _channel: Channel<Msg>,
        _host: &str,
        _port: u32,
        _originator_address: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandshakeError> {
        drop(reply);
        Ok(())
    }

    async fn server_channel_open_direct_streamlocal(
        &mut self,
        _channel: Channel<Msg>,
        _socket_path: &str,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandshakeError> {
        drop(reply);
        Ok(())
    }

    async fn server_channel_open_forwarded_tcpip(
        &mut self,
        channel: Channel<Msg>,
        _connected_address: &str,
        connected_port: u32,
        _originator_address: &str,
        _originator_port: u32,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandshakeError> {
        if let Some(place) = self.listener.place_for_port(connected_port) {
            reply.accept().await;
            place.fill(channel, &self.closes);
        }
        Ok(())
    }

    async fn server_channel_open_forwarded_streamlocal(
        &mut self,
        channel: Channel<Msg>,
        socket_path: &str,
        reply: ChannelOpenHandle,
        _session: &mut Session,
    ) -> Result<(), HandshakeError> {
        if let Some(place) = self.listener.place_for_socket(socket_path) {
            reply.accept().await;
            place.fill(channel, &self.closes);
        }
        Ok(())
    }
}

/// Records the key that a server presents, then stops.
pub(crate) struct KeyLook(pub(crate) Arc<OnceLock<PublicKeyOrCertificate>>);

impl client::Handler for KeyLook {
    type Error = russh::Error;

    async fn check_server_key(
        &mut self,
        key: &PublicKeyOrCertificate,
    ) -> Result<bool, russh::Error> {
        self.0.get_or_init(|| copy(key));
        Ok(false)
    }
}
