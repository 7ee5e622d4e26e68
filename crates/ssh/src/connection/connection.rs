//! An authenticated connection, and the signs of life on it.

use std::io;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use russh::ChannelStream;
use russh::client::{Handle, Msg};
use tokio::time::timeout;

use super::channel::{self, Channel};
use super::errors::{timed_out, unreachable};
use super::watched::Pulse;
use crate::trust::HostKeyCheck;
use crate::tunnel::{Closes, TunnelListener};
use crate::{ChannelError, ConnectError, HostConfig, Negotiated};

/// An authenticated SSH connection. Many channels share it.
pub struct Connection {
    pub(super) handle: Arc<Handle<HostKeyCheck>>,
    pub(super) negotiated: Arc<OnceLock<Negotiated>>,
    pub(super) host: HostConfig,
    pub(super) pulse: Pulse,
    pub(super) listener: TunnelListener,
    pub(super) closes: Closes,
    /// Channels that we closed before the server did.
    pub(super) closed_first: Arc<AtomicUsize>,
    /// The connection through which this one goes. It lives as long as this one.
    pub(super) _via: Option<Arc<Self>>,
}

/// A connection is worn out after we have closed this many channels before the server. russh holds about 1 MB for them.
pub(crate) const MOST_CLOSED_FIRST: usize = 300;
/// Time limit for a silent connection to answer before it is used again.
const PING_TIMEOUT: Duration = Duration::from_secs(2);

impl Connection {
    /// Opens a stream through this host to another (RFC 4254 §7.2, direct-tcpip). This host
    /// resolves the other's name.
    pub(super) async fn tunnel(
        &self,
        host: &HostConfig,
    ) -> Result<ChannelStream<Msg>, ConnectError> {
        let opening = self
            .handle
            // The originator (RFC 4254 §7.2), which only informs the server.
            .channel_open_direct_tcpip(&*host.address, host.port.into(), "127.0.0.1", 0);
        match timeout(host.connect_timeout, opening).await {
            Ok(Ok(channel)) => Ok(channel.into_stream()),
            Ok(Err(russh::Error::ChannelOpenFailure(reason))) => {
                let why = format!(
                    "the jump host {} does not lead there ({reason:?})",
                    self.host.name
                );
                Err(unreachable(host, io::Error::other(why)))
            }
            Ok(Err(source)) => Err(ConnectError::Protocol {
                host: self.host.name.clone(),
                source,
            }),
            Err(_) => Err(timed_out(host, "connecting")),
        }
    }

    /// Opens a session channel (RFC 4254 §6.1).
    pub async fn open(&self) -> Result<Channel, ChannelError> {
        let handle = Arc::clone(&self.handle);
        let closed_first = Arc::clone(&self.closed_first);
        channel::open(
            handle,
            self.host.connect_timeout,
            self.pulse.lost(),
            closed_first,
        )
        .await
    }

    /// Whether the connection should be replaced, because it keeps memory for many channels that have ended:
    /// russh 0.65 frees its record of a channel that we close before the server only with the connection.
    pub fn is_worn_out(&self) -> bool {
        self.closed_first.load(Relaxed) >= MOST_CLOSED_FIRST
    }

    /// Whether the connection is lost.
    pub fn is_closed(&self) -> bool {
        self.handle.is_closed()
    }

    /// Time since the last received data.
    pub fn silent_for(&self) -> Duration {
        self.pulse.heard_at().elapsed()
    }

    /// Sends a keepalive (`keepalive@openssh.com`) and returns whether the server answered within
    /// two seconds.
    pub async fn ping(&self) -> bool {
        // russh reports success also if the session ends before the answer.
        timeout(PING_TIMEOUT, self.handle.send_ping())
            .await
            .is_ok_and(|sent| sent.is_ok())
            && !self.is_closed()
    }

    /// Stops or resumes receiving, so that the far end has to wait. Sending still works. No answer
    /// arrives over a held connection.
    pub fn hold(&self, is_held: bool) {
        self.pulse.hold(is_held);
    }

    /// Sends a keepalive to the server, which need not answer.
    pub async fn show_life(&self) {
        // If the connection is lost, the channel's reader gets an error.
        drop(timeout(PING_TIMEOUT, self.handle.send_keepalive(false)).await);
    }

    /// Whether receiving is stopped.
    pub fn is_held(&self) -> bool {
        self.pulse.is_held()
    }

    /// The host at its far end.
    pub fn host(&self) -> &HostConfig {
        &self.host
    }

    /// The negotiated algorithms.
    pub fn negotiated(&self) -> Negotiated {
        self.negotiated.get().cloned().unwrap_or_default()
    }

    /// Sends a disconnect message (RFC 4253 §11.1).
    pub async fn disconnect(&self) {
        let goodbye = self.handle.disconnect(russh::Disconnect::ByApplication, "", "");
        // If the server does not read any more, dropping the connection has the same effect.
        drop(timeout(Duration::from_secs(1), goodbye).await);
    }
}
