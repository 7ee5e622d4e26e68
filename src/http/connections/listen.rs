//! The addresses and sockets that a server listens on.

use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;

use tokio::net::TcpListener;

use super::room::Places;
use crate::private_socket::PrivateSocket;

/// A network address or a unix socket that accepts connections.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(PrivateSocket),
}

impl Listener {
    pub(crate) async fn tcp(address: SocketAddr) -> io::Result<Self> {
        Ok(Self::Tcp(TcpListener::bind(address).await?))
    }

    /// Maximum connections.
    pub(crate) fn places(&self) -> Places {
        match self {
            Self::Tcp(_) => Places::NETWORK,
            Self::Unix(_) => Places::SOCKET,
        }
    }

    /// Its network address, if it has one.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(_) => None,
        }
    }

    /// Listens at a path to which only the owner may connect. Replaces a socket without a
    /// listener.
    pub(crate) fn unix(path: &Path) -> io::Result<Self> {
        let is_socket = path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket());
        // Any other error, such as a missing permission, may come from a server that still listens.
        if is_socket
            && let Err(error) = UnixStream::connect(path)
            && error.kind() == io::ErrorKind::ConnectionRefused
        {
            std::fs::remove_file(path)?;
        }
        PrivateSocket::bind(path).map(Self::Unix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_file_of_a_killed_server_is_replaced_and_that_of_a_running_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("sshjobs.sock");
        // As a killed server leaves it.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());

        let _listener = Listener::unix(&path).unwrap();
        let error = Listener::unix(&path).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert!(UnixStream::connect(&path).is_ok());
    }
}
