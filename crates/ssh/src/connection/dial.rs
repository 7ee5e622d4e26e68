//! Streams to targets that the host reaches, and from a listener on it (RFC 4254, section 7).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use super::Connection;
use crate::tunnel::{Endpoint, Tunnel};
use crate::{ChannelError, DialError};

/// Time limit for a target to accept a stream.
const DIAL_TIME: Duration = Duration::from_secs(10);
/// Time limit for the server to make or remove a listener.
const LISTEN_TIME: Duration = Duration::from_secs(10);

impl Connection {
    /// Opens a stream to a target that the host reaches, within ten seconds. The host resolves the
    /// target's name. If the caller stops waiting, a stream that opens later is closed.
    #[expect(
        clippy::disallowed_methods,
        reason = "it outlives its caller on purpose, and is bounded in time"
    )]
    pub async fn dial(&self, target: &Endpoint) -> Result<Tunnel, DialError> {
        let (sender, receiver) = oneshot::channel::<Result<_, DialError>>();
        let handle = Arc::clone(&self.handle);
        let target = target.clone();
        tokio::spawn(async move {
            let opening = async {
                match target {
                    // The originator only informs the server.
                    Endpoint::Tcp { host, port } => {
                        let origin = "127.0.0.1";
                        handle.channel_open_direct_tcpip(host, port.into(), origin, 0).await
                    }
                    Endpoint::Unix(path) => handle.channel_open_direct_streamlocal(path).await,
                }
            };
            let mut opening = Box::pin(opening);
            let mut has_timed_out = false;
            let opened = match timeout(DIAL_TIME, &mut opening).await {
                Ok(Ok(channel)) => Ok(channel),
                Ok(Err(russh::Error::ChannelOpenFailure(reason))) => Err(reason.into()),
                Ok(Err(_)) => Err(ChannelError::ConnectionLost.into()),
                Err(_) => {
                    has_timed_out = true;
                    Err(ChannelError::TimedOut(DIAL_TIME).into())
                }
            };
            // russh does not close a channel on the server when it is dropped.
            if let Err(Ok(unwanted)) = sender.send(opened) {
                unwanted.close().await.ok();
            } else if has_timed_out && let Ok(Ok(late)) = timeout(DIAL_TIME * 12, opening).await {
                late.close().await.ok();
            }
        });
        let opened = receiver.await.unwrap_or(Err(ChannelError::ConnectionLost.into()));
        Ok(Tunnel::new(opened?, &self.closes))
    }

    /// Makes the host listen, and hands over the streams that it accepts. Returns where it listens:
    /// for port 0 the server has chosen one. A connection has one listener.
    ///
    /// # Errors
    /// [`DialError::ListenRefused`] if the server refuses: the port is taken, or it does not allow
    /// forwards.
    pub async fn listen(
        &self,
        at: &Endpoint,
        tunnels: mpsc::Sender<Tunnel>,
    ) -> Result<Endpoint, DialError> {
        let requested = async {
            match at {
                Endpoint::Tcp { host, port } => {
                    let chosen = self.handle.tcpip_forward(host, (*port).into()).await?;
                    // The reply has a port only if the server was to choose one.
                    let port = if *port == 0 {
                        u16::try_from(chosen).unwrap_or(0)
                    } else {
                        *port
                    };
                    Ok(Endpoint::tcp(host, port))
                }
                Endpoint::Unix(path) => {
                    self.handle.streamlocal_forward(path).await?;
                    Ok(at.clone())
                }
            }
        };
        let bound = match timeout(LISTEN_TIME, requested).await {
            Ok(Ok(bound)) => bound,
            Ok(Err(russh::Error::RequestDenied)) => return Err(DialError::ListenRefused),
            Ok(Err(_)) => return Err(ChannelError::ConnectionLost.into()),
            Err(_) => return Err(ChannelError::TimedOut(LISTEN_TIME).into()),
        };
        self.listener.start(bound.clone(), tunnels);
        Ok(bound)
    }

    /// Ends the listener on the host.
    pub async fn stop_listening(&self, at: &Endpoint) {
        self.listener.stop();
        let request = async {
            match at {
                Endpoint::Tcp { host, port } => {
                    self.handle.cancel_tcpip_forward(host, (*port).into()).await
                }
                Endpoint::Unix(path) => self.handle.cancel_streamlocal_forward(path).await,
            }
        };
        // The server also ends it with the connection.
        drop(timeout(LISTEN_TIME, request).await);
    }

    /// Waits until the connection is lost.
    pub async fn lost(&self) {
        self.pulse.lost().cancelled().await;
    }
}
