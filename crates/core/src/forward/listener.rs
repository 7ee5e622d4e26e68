//! Listeners and targets on this machine.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::time::timeout;

use super::error::ForwardError;
use sshjobs_base::private_socket::PrivateSocket;
use sshjobs_ssh::Endpoint;

/// A stream of this machine.
pub(super) trait Socket: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Socket for S {}

/// A listener of this machine.
pub(super) enum ForwardListener {
    Tcp(TcpListener),
    Unix(PrivateSocket),
}

/// Time limit for a target on this machine to accept a stream.
const CONNECT_TIME: Duration = Duration::from_secs(10);

impl ForwardListener {
    /// Listens on an endpoint. A socket is for its owner alone.
    pub(super) async fn bind(at: &Endpoint) -> Result<Self, ForwardError> {
        let bound = match at {
            Endpoint::Tcp { host, port } => {
                // An empty name and a star mean all addresses, as in ssh, but here only IPv4.
                let host = if host.is_empty() || host == "*" {
                    "0.0.0.0"
                } else {
                    host
                };
                TcpListener::bind((host, *port)).await.map(Self::Tcp)
            }
            Endpoint::Unix(path) => PrivateSocket::bind(Path::new(path)).map(Self::Unix),
        };
        bound.map_err(|source| ForwardError::Listen {
            at: at.clone(),
            source: Arc::new(source),
        })
    }

    /// Where it listens; for port 0, with the port that was chosen.
    pub(super) fn endpoint(&self, requested: &Endpoint) -> Endpoint {
        match (self, requested) {
            (Self::Tcp(listener), Endpoint::Tcp { host, port }) => {
                let chosen = listener.local_addr().map_or(*port, |address| address.port());
                Endpoint::tcp(host, chosen)
            }
            _ => requested.clone(),
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Box<dyn Socket>> {
        match self {
            Self::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // A client that has gone already is noticed when it is served.
                stream.set_nodelay(true).ok();
                Ok(Box::new(stream))
            }
            Self::Unix(socket) => Ok(Box::new(socket.accept().await?)),
        }
    }
}

/// Connects to a target of this machine, or one that it reaches.
pub(super) async fn connect(target: &Endpoint) -> io::Result<Box<dyn Socket>> {
    let connecting = async {
        match target {
            Endpoint::Tcp { host, port } => {
                let stream = TcpStream::connect((host.as_str(), *port)).await?;
                stream.set_nodelay(true)?;
                Ok(Box::new(stream) as Box<dyn Socket>)
            }
            Endpoint::Unix(path) => {
                Ok(Box::new(UnixStream::connect(path).await?) as Box<dyn Socket>)
            }
        }
    };
    timeout(CONNECT_TIME, connecting)
        .await
        .unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}
