use std::io;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::Connection;
use super::errors::{timed_out, unreachable};
use super::proxy::ProxyCommand;
use crate::{ConnectError, HostConfig};

/// A transport for an SSH connection.
pub(super) trait ByteStream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> ByteStream for S {}

/// Connects to the host: through the connection `via`, a configured command, or TCP.
pub(super) async fn stream_to(
    host: &HostConfig,
    via: Option<&Connection>,
) -> Result<Box<dyn ByteStream>, ConnectError> {
    if let Some(command) = &host.proxy_command {
        let started = ProxyCommand::start(command).map_err(|source| unreachable(host, source))?;
        return Ok(Box::new(started));
    }
    match via {
        Some(via) => Ok(Box::new(via.tunnel(host).await?)),
        None => Ok(Box::new(tcp(host).await?)),
    }
}

async fn tcp(host: &HostConfig) -> Result<TcpStream, ConnectError> {
    let Ok(found) = timeout(
        host.connect_timeout,
        lookup_host((host.address.as_str(), host.port)),
    )
    .await
    else {
        return Err(timed_out(host, "looking up the address"));
    };
    let no_address = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    let mut last = unreachable(host, no_address);
    let mut connected = None;
    // As in ssh, each address gets the whole time.
    for address in found.map_err(|source| unreachable(host, source))? {
        match timeout(host.connect_timeout, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                connected = Some(stream);
                break;
            }
            Ok(Err(error)) => last = unreachable(host, error),
            Err(_) => last = timed_out(host, "connecting"),
        }
    }
    let Some(stream) = connected else { return Err(last) };
    // russh applies `Config::nodelay` only to sockets that it opens itself.
    stream.set_nodelay(true).map_err(|source| unreachable(host, source))?;
    Ok(stream)
}
