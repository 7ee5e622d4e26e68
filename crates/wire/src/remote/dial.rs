use std::io;

use tokio::net::UnixStream;

use super::ServerAddress;
pub(super) use sshjobs_base::dial::Io;
use sshjobs_base::dial::dial as dial_port;

/// Connects to a server.
///
/// # Errors
/// Those of connecting.
pub(super) async fn dial(address: &ServerAddress) -> io::Result<Box<dyn Io>> {
    match address {
        ServerAddress::Socket(path) => Ok(Box::new(UnixStream::connect(path).await?)),
        ServerAddress::Network {
            is_secure,
            host,
            port,
            ..
        } => dial_port(host, *port, *is_secure).await,
    }
}
