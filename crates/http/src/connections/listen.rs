//! The addresses and sockets that a server listens on.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use tokio::net::TcpListener;

use super::room::Places;
use sshjobs_base::private_socket::PrivateSocket;

/// A network address or a unix socket that accepts connections.
pub(crate) enum ServerListener {
    Tcp(TcpListener),
    Unix(PrivateSocket),
}

impl ServerListener {
    pub(crate) async fn tcp(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::Tcp(TcpListener::bind(address).await?))
    }

    /// Maximum connections.
    pub(crate) fn places(&self) -> Places {
        match self {
            Self::Tcp(_) => Places::network(),
            Self::Unix(_) => Places::socket(),
        }
    }

    /// Its network address, if it has one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Listens at a path to which only the owner may connect. Replaces the socket of a
    /// server that has ended.
    pub(crate) fn unix(path: &Path) -> io::Result<Self> {
        PrivateSocket::bind(path).map(Self::Unix)
    }
}
